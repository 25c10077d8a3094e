# Our driver on vfio-pci (machine 0) and Linux's (machine 1), two functions each, all on one switch; our forwarder's queues between
# Linux's two network devices.
first=0000:01:00.0
second=0000:02:00.0
libraries=/run/libraries
ours="env LD_LIBRARY_PATH=$libraries BAREVERBS_DEVICE=vfio:$first BAREVERBS_ADDRESS=10.0.0.1/24 BAREVERBS_LOG=info"
count=2000
lanes=4
# Where the forwarder sends what comes to its second port, and to its first.
mac0=02:00:00:00:00:00
mac1=02:00:00:00:00:01
devices='one=$(ls /sys/bus/pci/devices/'$first'/net) && two=$(ls /sys/bus/pci/devices/'$second'/net)'
case $me in
0)
    step 60 'ours' "modprobe vfio_iommu_type1 && modprobe vfio-pci && for card in $first $second; do
            /ours/devinfo --device vfio:\$card --bind || exit
        done
        mkdir $libraries && for name in libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1; do
            ln -s /ours/libibverbs.so.1 $libraries/\$name || exit 1
        done"
    ;;
1)
    # Nothing else is to send.
    step 60 'theirs' "modprobe mlx5_ib && modprobe ib_uverbs && $devices &&
        for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/\$new/disable_ipv6; done &&
        ip link set \$one address $mac0 && ip link set \$two address $mac1 &&
        for device in \$one \$two; do
            ip link set \$device up && until_true \"grep -q 1 /sys/class/net/\$device/carrier\" || exit
        done
        ethtool -x \$one && ibv_devinfo && /ours/flows hello \$one \$two && /ours/flows hello \$two \$one"
    ;;
esac
# The address of our first port.
via=02:c9:00:00:00:01
[ "$me" = 1 ] || step 30 'our address' "/ours/devinfo --device vfio:$first | grep '$via'"
barrier

# Our forwarder has four queues on each port, and Linux's devices have as many.
# forwards NAME OPTIONS
forwards() {
    [ "$me" = 1 ] || step 60 "$1" "setsid /ours/l2fwd --device vfio:$first,vfio:$second -n $lanes $2 > /run/forwarder 2>&1 &
        until_true 'grep -q ^all: /run/forwarder'"
    barrier
    # The switch learns the forwarder's addresses by the first frame, which so may come out at both of its ports.
    [ "$me" = 0 ] || step 60 "$1: first frame" "$devices && /ours/flows hello \$one \$two $via"
}

# totals PORT: how many frames of this port each lane has forwarded.
talk='
totals() {
    awk "/^lane/ { of[\$2 + 0] = \$(NF - 4 + 2 * $1); if (\$2 + 0 > most) most = \$2 + 0 }
        END { for (at = 0; at <= most; at++) printf \"%d,\", of[at] }" /run/forwarder
}
# shares BEFORE NOW
shares() {
    echo "$1:$2" | awk -F: "{ lanes = split(\$1, old, \",\"); split(\$2, new, \",\")
        for (at = 1; at < lanes; at++) printf \"%d,\", new[at] - old[at] }"
}
# rested: waits until the forwarder has said twice what it has done, which it does once a second: the second time it has counted all
# that came before.
rested() {
    said=$(grep -c "^all:" /run/forwarder)
    until_true "[ \$(grep -c ^all: /run/forwarder) -ge $((said + 2)) ]"
}
'
# spread NAME PORT FROM TO VIA SEED: frames of drawn flows, and of those whose hashes Microsoft has published.
spread() {
    [ "$me" = 1 ] || step 30 "$1: before" "$talk rested; totals $2 | tee /run/before"
    barrier
    [ "$me" = 0 ] || step 120 "$1: Linux's queues" "$devices && /ours/flows pass $3 $4 $5 $count $lanes $6 > /run/passed
        status=\$?; cat /run/passed; exit \$status"
    exchange shares 'sed -n "s/^expected //p" /run/passed 2> /dev/null | tr " " ,'
    [ "$me" = 1 ] || step 30 "$1: the forwarder's queues" "$talk
        before=\$(cat /run/before)
        within 10 '[ \$(shares \$before \$(totals $2)) = $answer, ]'
        right=\$?
        echo \"note: the forwarder's queues: \$(shares \$before \$(totals $2)) (Toeplitz: $answer)\"
        exit \$right"
    barrier
}
ends() {
    [ "$me" = 1 ] || step 30 "$1" 'tail -n 7 /run/forwarder; ! grep "[1-9][0-9]* dropped" /run/forwarder && kill $(pidof l2fwd) && until_true "! pidof l2fwd"'
    barrier
}
