# Our forwarder on vfio-pci (machine 0) between two ports of testpmd (machine 1), two functions each, all on one switch.
first=0000:01:00.0
second=0000:02:00.0
lanes=2
pmd="LD_LIBRARY_PATH=/dpdk LD_PRELOAD=/dpdk/libstdbuf.so _STDBUF_O=L setsid /dpdk/dpdk-testpmd -l 0-1 -a $first -a $second
    -d /dpdk/librte_mempool_ring.so.25 -d /dpdk/librte_net_mlx5.so.25 -- -i --total-num-mbufs=4096
    --eth-peer=0,02:c9:00:00:00:01 --eth-peer=1,02:c9:00:00:00:02"
talk='
# tell COMMAND...: gives testpmd commands, waits until it has executed them (it echoes a line when it reads it), and prints
# what it printed.
tell() {
    count=$(($(cat /run/count) + 1))
    echo $count > /run/count
    dead $(cat /run/pid) && return 1
    before=$(wc -c < /run/testpmd)
    printf "%s\n" "$@" "# $count" > /run/commands
    until_true "grep -q \"# $count\" /run/testpmd || dead \$(cat /run/pid)"
    tail -c "+$((before + 1))" /run/testpmd
    ! dead $(cat /run/pid)
}
# figures PORT: packets and bytes sent, packets and bytes received, and packets that there was no buffer for.
figures() {
    tell "show port stats $1" | awk "{ for (i = 1; i < NF; i++) value[\$i] = \$(i + 1) }
        END { print value[\"TX-packets:\"], value[\"TX-bytes:\"], value[\"RX-packets:\"], value[\"RX-bytes:\"], value[\"RX-missed:\"] }" | tr " " ,
}
# totals: how many frames the forwarder has forwarded from its first port and from its second.
totals() {
    tail -n 10 /run/forwarder | awk "/^lane/ { one[\$2] = \$(NF - 4); two[\$2] = \$(NF - 2) }
        END { for (at in one) { first += one[at]; second += two[at] } print first + 0 \",\" second + 0 }"
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
    # EAL loads nothing from below a directory that everybody may write to.
    step 60 'prepare' 'chmod 755 / && tar -C / -xf /ours/dpdk.tar && mkdir -p /var && ln -s /run /var/run && echo 0 > /run/count && mkfifo /run/commands &&
        echo 96 > /proc/sys/vm/nr_hugepages && mkdir /dev/hugepages && mount -t hugetlbfs huge /dev/hugepages && grep HugePages /proc/meminfo'
    step 100 'testpmd' ": > /run/testpmd
        sleep 100000 > /run/commands 2> /dev/null & echo \$! > /run/writer
        $(echo $pmd) < /run/commands >> /run/testpmd 2>&1 & echo \$! > /run/pid
        until_true 'grep -q testpmd\> /run/testpmd || dead \$(cat /run/pid)'
        cat /run/testpmd; ! dead \$(cat /run/pid)"
    # The switch learns testpmd's addresses, without which frames would come back to the forwarder.
    step 60 'first frames' "$talk tell 'set fwd rxonly' 'start tx_first 1' stop"
    ;;
esac
barrier
[ "$me" = 1 ] || step 60 'forwarder' "setsid /ours/l2fwd --device vfio:$first,vfio:$second -n $lanes > /run/forwarder 2>&1 &
    until_true 'grep -q ^all: /run/forwarder'"
barrier
# And the forwarder's, by frames that may come out at both of its ports.
[ "$me" = 0 ] || step 60 'frames through it' "$talk tell 'start tx_first 1' && sleep 1 && tell stop 'clear port stats all'"
barrier
[ "$me" = 1 ] || step 10 'before' "$talk sleep 2; totals | tee /run/before"
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
[ "$me" = 0 ] || step 60 'quit' "$talk
    tell stop; tell quit; kill \$(cat /run/writer); grep -q Bye /run/testpmd"
[ "$me" = 1 ] || step 30 'forwarder ends' 'tail -n 3 /run/forwarder; ! grep "[1-9][0-9]* dropped" /run/forwarder && kill $(pidof l2fwd) && until_true "! pidof l2fwd"'
