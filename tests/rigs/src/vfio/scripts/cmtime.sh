# One machine, two functions on one cable: our cmtime on vfio-pci, then rdma-core's on mlx5_core. Both take as many connections
# through the same steps, one queue pair per connection, all with one completion queue; server and client are a process
# each.
first=0000:01:00.0
second=0000:02:00.0
count=100
# So many times rdma-core's rate has to be ours.
factor=5
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"
for wait in '' ' --interrupts'; do
    client_server 120 "ours$wait" 'grep -q listening /run/server' "/ours/cmtime --device vfio:$first -b 10.0.0.1 -c $count$wait" \
        "/ours/cmtime --device vfio:$second -b 10.0.0.2 -s 10.0.0.1 -c $count$wait > '/run/ours$wait'
        status=\$?; cat '/run/ours$wait'; exit \$status"
done

# Two of the kernel's network devices reach each other through a cable, and not through the kernel, if each has a network of
# its own.
at='nsenter --net=/run/netns'
step 120 'to the kernel' "modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --unbind || exit; done"
step 60 'networks' "number=1; mkdir /run/netns
    for card in $first $second; do
        device=\$(ls /sys/bus/pci/devices/\$card/net) && ip netns add \$number && ip link set \$device netns \$number &&
            /usr/bin/ip -n \$number link set lo up && /usr/bin/ip -n \$number link set \$device up &&
            /usr/bin/ip -n \$number address add 10.0.0.\$number/24 dev \$device || exit
        number=\$((number + 1))
    done
    for gid in 0a00:0001 0a00:0002; do until_true \"grep -q ffff:\$gid /sys/class/infiniband/*/ports/1/gids/*\"; done
    $at/2 ping -c 1 -w 30 10.0.0.1; rdma link"
# What goes over the cable is what the port counts.
sent='cat /sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_packets'
client_server 240 'theirs' listening_cm "$at/1 cmtime -b 10.0.0.1 -c $count" \
    "before=\$($sent); $at/2 cmtime -b 10.0.0.2 -s 10.0.0.1 -c $count > /run/theirs
    status=\$?; cat /run/theirs; sent=\$((\$($sent) - before)); echo \$sent packets
    [ \$sent -ge $((3 * count)) ] && exit \$status"

# Its first table is of connections with queue pairs; microseconds for all of them.
step 60 'beside each other' "
    theirs() { awk -v step=\"\$1\" 'index(\$0, step) == 1 { printf \"%.1f\", $count * 1e6 / \$4; exit }' /run/theirs; }
    ours() { sed -n \"s|.*[ ,]\\([0-9]*\\)/s from \$2.*|\\1|p\" \"/run/ours\$1\"; }
    full=\$(theirs 'full connect')
    echo \"note: $count connections at once, per second from create id to established (from connect on)\"
    echo \"note: rdma-core's cmtime on mlx5_core: \$full (\$(theirs 'cm connect'))\"
    for wait in '' ' --interrupts'; do
        echo \"note: ours\$wait on vfio-pci: \$(ours \"\$wait\" 'create id') (\$(ours \"\$wait\" connect))\"
    done
    echo \$full \$(ours '' 'create id') | awk '{ printf \"note: ours is %.1f times as fast\\n\", \$2 / \$1
        exit !(NF == 2 && \$1 > 0 && \$2 >= $factor * \$1) }'"
