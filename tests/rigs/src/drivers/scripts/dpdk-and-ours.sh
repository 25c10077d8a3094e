# Our forwarder on vfio-pci (machine 0) between two ports of testpmd (machine 1), two functions each, all on one switch.
first=0000:01:00.0
second=0000:02:00.0
lanes=2
pmd="$pmd -a $first -a $second"
talk="$talk"'
# totals: how many frames the forwarder has forwarded from its first port and from its second.
totals() {
    tail -n 10 /run/forwarder | awk "/^lane/ { one[\$2] = \$(NF - 4); two[\$2] = \$(NF - 2) }
        END { for (at in one) { first += one[at]; second += two[at] } print first + 0 \",\" second + 0 }"
}
# rested: waits until the forwarder has said twice what it has done, which it does once a second: the second time it has counted all
# that came before.
rested() {
    said=$(grep -c "^all:" /run/forwarder)
    until_true "[ \$(grep -c ^all: /run/forwarder) -ge $((said + 2)) ]"
}
'
case $me in
0) step 60 'ours' "modprobe vfio_iommu_type1 && modprobe vfio-pci && for card in $first $second; do
        /ours/devinfo --device vfio:\$card --bind || exit; done" ;;
1)
    # The forwarder sends to these addresses.
    step 60 'theirs' "modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs &&
        for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/\$new/disable_ipv6; done && number=0 &&
        for card in $first $second; do
            device=\$(ls /sys/bus/pci/devices/\$card/net) && ip link set \$device address 02:00:00:00:00:0\$number &&
                ip link set \$device up && until_true \"grep -q 1 /sys/class/net/\$device/carrier\" || exit
            number=\$((number + 1))
        done"
    prepare
    start_testpmd 'testpmd' '-- -i --total-num-mbufs=4096
        --eth-peer=0,02:c9:00:00:00:01 --eth-peer=1,02:c9:00:00:00:02'
    # The switch learns testpmd's addresses, without which frames would come back to the forwarder.
    step 60 'first frames' "$talk tell 'set fwd rxonly' 'start tx_first 1' stop"
    ;;
esac
barrier
[ "$me" = 1 ] || step 60 'forwarder' "setsid /ours/l2fwd --device vfio:$first,vfio:$second -n $lanes --compress > /run/forwarder 2>&1 &
    until_true 'grep -q ^all: /run/forwarder'"
barrier
# And the forwarder's, by frames that may come out at both of its ports.
[ "$me" = 0 ] || step 60 'frames through it' "$talk tell 'start tx_first 1' && sleep 5 && tell stop 'clear port stats all'"
barrier
[ "$me" = 1 ] || step 30 'before' "$talk rested; totals | tee /run/before"
barrier
[ "$me" = 0 ] || step 60 'send' "$talk tell 'start tx_first 4'"
# What either port sends comes out of the other one; the forwarder counts as many.
[ "$me" = 0 ] || step 60 'the same' "$talk
    same() {
        figures 0 > /run/figures0 && figures 1 > /run/figures1
        echo \$(cat /run/figures0),\$(cat /run/figures1) | awk -F, '{ exit !(\$1 == 128 && \$2 == 128 * 64 &&
            \$1 == \$8 && \$2 == \$9 && \$6 == \$3 && \$7 == \$4 && \$6 == 128 && \$5 + \$10 == 0) }'
    }
    within 20 same
    right=\$?
    echo \"note: packets and bytes sent, received, without a buffer: \$(cat /run/figures0) and \$(cat /run/figures1)\"
    exit \$right"
barrier
[ "$me" = 1 ] || step 30 'forwarded' "$talk
    now() { echo \$(cat /run/before),\$(totals) | awk -F, '{ print \$3 - \$1, \$4 - \$2 }'; }
    within 10 '[ \"\$(now)\" = \"128 128\" ]'
    right=\$?
    echo \"note: forwarded from each port: \$(now)\"
    exit \$right"
[ "$me" = 0 ] || step 60 'stop' "$talk tell stop"
[ "$me" = 0 ] || end_testpmd 'quit'
[ "$me" = 1 ] || step 30 'forwarder ends' 'tail -n 3 /run/forwarder; ! grep "[1-9][0-9]* dropped" /run/forwarder && kill $(pidof l2fwd) && until_true "! pidof l2fwd"'
