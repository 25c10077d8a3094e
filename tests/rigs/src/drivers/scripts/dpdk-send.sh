# testpmd in machine 0 and Linux's network device in machine 1, at the two ends of one cable. The port has no rules for what it
# receives (isolated mode of rte_flow), so that the driver needs no namespace of Linux's for rules of programs.
card=0000:01:00.0
pmd="$pmd -d /dpdk/librte_net_pcap.so.25"
# got: packets and bytes that Linux received, and packets that there was no buffer for.
counts='
got() {
    device=$(netdev mlx5_core) && cd /sys/class/net/$device/statistics && echo $(cat rx_packets rx_bytes) \
        $(ethtool -S $device | awk "/ rx_out_of_buffer:/ { print \$2 }")
}
# now BYTES: packets and bytes that came since then, of packets of so many bytes.
now() {
    echo $(cat /run/before) $(got) | awk "{ lost = \$6 - \$3; print \$4 - \$1 + lost \",\" \$5 - \$2 + lost * $1 }"
}
'
eval "$talk"

step 60 'load' 'modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && netdev mlx5_core'
# Frames are to addresses that are not the device's. It warns if it takes them all and takes out tags.
step 60 'up' 'card=$(netdev mlx5_core) && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done &&
    ethtool -K $card rxvlan off && ip link set $card mtu 9000 promisc on up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier"'
[ "$me" = 1 ] || prepare

# isolate NAME DEVICE-ARGUMENTS ARGUMENTS: testpmd with the port isolated, which a port that was started cannot be made. With
# rules of its own it starts where Linux has the namespace for them, for which it wants all of these of the card:
# flow_modify_en, modify_root, identified_miss_table_mode and flow_table_modify (FS_CHAINING_CAPS of fs_core.c).
isolate() {
    [ "$me" = 0 ] || return 0
    start_testpmd "$1" "-a $card$2 $3"
    step 60 "$1: isolated" "$talk
        case \$(cat /sys/bus/pci/devices/$card/device) in
        0x1013 | 0x1015) grep 'Fail to start port 0: Operation not supported' /run/testpmd ;;
        *) ! grep 'Fail to start' /run/testpmd ;;
        esac || exit
        tell 'port stop all' 'flow isolate 0 1' 'port start all' | tee /run/isolated
        grep -q 'Ingress traffic on port 0 is now restricted' /run/isolated && ! grep -q Fail /run/isolated"
}
# come NAME BYTES COMMAND...: testpmd's commands, and then machine 0 sends packets of so many bytes, which machine 1 gets.
come() {
    name=$1 bytes=$2
    shift 2
    words=
    for word in "$@"; do
        words="$words '$word'"
    done
    [ "$me" = 0 ] || step 10 "$name: before" "$counts
        got | tee /run/before"
    barrier
    [ "$me" = 1 ] || step 60 "$name: send" "$talk
        tell$words 'clear port stats all' start
        usleep 300000
        tell stop
        figures 0 > /run/sent && grep '^[1-9]' /run/sent"
    exchange sent '[ "$me" = 1 ] && echo none || cut -d , -f 1,2 /run/sent'
    [ "$me" = 0 ] || step 30 "$name: come" "$counts
        within 20 '[ \"\$(now $bytes)\" = $answer ]'
        right=\$?
        echo \"note: packets and bytes sent, and received: $answer \$(now $bytes)\"
        exit \$right"
}
# leave NAME
leave() {
    [ "$me" = 1 ] || end_testpmd "$1"
}

# The port beside it is a file, whose frames are large and have false checksums. tshark is shown what is on the cable.
isolate 'a file' '' '--vdev=net_pcap0,rx_pcap=/ours/frames.pcap -- -i --total-num-mbufs=4096 --max-pkt-len=9018
    --mbuf-size=10240 --no-flush-rx'
come 'checksums' 5654 'port stop all' 'csum set ip hw 0' 'csum set tcp hw 0' 'port start all' 'set fwd csum'
come 'segments' 1454 'port stop all' 'tso set 1400 0' 'port start all'
leave 'a file: quit'

isolate '9000 bytes' '' '-- -i --total-num-mbufs=8192 --max-pkt-len=9018 --rx-offloads=0x2000 --tx-offloads=0x8000'
come '9000 bytes: packets' 9014 'set fwd txonly' 'set txpkts 2000,2000,2000,2000,1014'
leave '9000 bytes: quit'

# Several packets in one request, in the older form if the card has no other; and in the request, as both cards with that form
# demand headers in it.
isolate 'several packets' ',txq_mpw_en=1,txqs_min_inline=1,txq_inline_max=128,txq_inline_mpw=128' \
    '-- -i --total-num-mbufs=4096 --txq=2 --rxq=2 --txonly-multi-flow'
[ "$me" = 1 ] || step 30 'several packets: function' "$talk
    tell 'show txq info 0 1' > /run/function
    case \$(cat /sys/bus/pci/devices/$card/device) in
    0x1013 | 0x1015) form=Legacy ;;
    *) form=Enhanced ;;
    esac
    awk '/^Burst mode:/ { sub(\"Burst mode: *\", \"\"); print \"note: \" \$0 }' /run/function
    grep -q \"^Burst mode: \$form MPW\" /run/function"
come 'several packets' 64 'set fwd txonly'
leave 'several packets: quit'
