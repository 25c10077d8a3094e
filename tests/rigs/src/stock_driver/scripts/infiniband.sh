# Programs that find each other through TCP, here on a network beside the card's, and then use InfiniBand.
step 60 'network' 'modprobe virtio_pci && modprobe virtio_net &&
    ip addr add 10.0.0.$((me + 1))/24 dev $(netdev virtio_net) && ip link set $(netdev virtio_net) up'
barrier
step 60 'the other machine' 'ping -c 1 -w 50 10.0.0.$((peer + 1))'
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe ib_umad && ls /dev/infiniband'
step 60 'devinfo' 'ibv_devinfo -v'
step 60 'ibstat' 'ibstat mlx5_0 1'
# Subnet management of the own port, by the firmware's agent, and of the other machine's, which is the next on the cable.
step 60 'own node' 'smpquery -D nodeinfo 0'
step 60 'own port' 'smpquery -D portinfo 0 1'
step 60 'own keys' 'smpquery -D pkeys 0 && smpquery -D guidinfo 0'
step 60 'own name' 'smpquery nodedesc $((me + 1))'
barrier
step 60 'other node' 'smpquery -D nodeinfo 0,1'
step 60 'other port' 'smpquery portinfo $((peer + 1)) 1'
step 60 'own counters' 'perfquery -x && perfquery'
step 60 'other counters' 'perfquery -x $((peer + 1)) 1'
barrier
# The last has no option to check what came.
for kind in 'rc_pingpong -c' 'uc_pingpong -c' 'ud_pingpong -c' 'srq_pingpong -c' 'xsrq_pingpong'; do
    for events in '' ' -e'; do
        program="ibv_$kind -n 200$events"
        client_server 120 "$program" 'listening 18515' "$program" "$program 10.0.0.1"
    done
done
for test in write_bw read_bw send_bw atomic_bw write_lat read_lat send_lat atomic_lat; do
    program="ib_$test -F -n 100"
    client_server 120 "ib_$test" 'listening 18515' "$program" "$program 10.0.0.1"
done
step 60 'queue counters' 'grep . /sys/class/infiniband/mlx5_0/ports/1/hw_counters/*'
step 60 'unload' 'rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
