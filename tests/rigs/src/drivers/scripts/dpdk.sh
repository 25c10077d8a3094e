# testpmd in both guests, one port each, at the two ends of one cable. $device_arguments are before this script.
pmd="$pmd -a 0000:01:00.0$device_arguments -d /dpdk/librte_net_pcap.so.25"
step 60 'load' 'modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier"'
prepare

# Machine 0 has a second port, which is a file, with none of the offloads: large frames, whose checksums are false. What it
# sends of them is what tshark is shown of the cable.
long='-- -i --total-num-mbufs=8192 --rxd=4096 --max-pkt-len=9018 --rx-offloads=0x200e --tx-offloads=0x8000'
case $me in
0) launch 'a file' '--vdev=net_pcap0,rx_pcap=/ours/frames.pcap -- -i --total-num-mbufs=4096 --max-pkt-len=9018 --mbuf-size=10240
    --no-flush-rx' ;;
1) launch 'a file' "$long" ;;
esac
# from_file NAME [COMMAND...]: machine 0 sends what is in the file.
from_file() {
    name=$1
    shift
    barrier
    if [ "$me" = 0 ]; then
        go "$name" 'port stop all' "$@" 'port start all' 'clear port stats all'
    else
        go "$name" 'set fwd rxonly' 'set verbose 1' 'clear port stats all' start
    fi
    barrier
    [ "$me" = 1 ] || go "$name: send" start
}
# checksums NAME FRAMES GOOD: how many frames machine 1 got, and how many of them had good checksums.
checksums() {
    [ "$me" = 0 ] || step 30 "$1" "$talk
        tell 'set verbose 0' > /run/last
        awk '/^testpmd> set verbose 1/ { all = good = 0 } /ol_flags:/ { all++ } /RX_L4_CKSUM_GOOD.*RX_IP_CKSUM_GOOD/ { good++ }
            END { print \"note: frames, with good checksums:\", all, good; exit !(all == $2 && good == $3) }' /run/testpmd"
    go "$1: over" stop
}
from_file 'checksums' 'csum set ip hw 0' 'csum set tcp hw 0' 'set fwd csum'
agree 'checksums: the same' 5654
checksums 'checksums: seen' 64 64
from_file 'segments' 'tso set 1400 0'
agree 'segments: the same' 1454
checksums 'segments: seen' 256 256
leave 'a file: quit'

# Frames for an MTU of 9000 bytes are in several buffers at both ends.
launch '9000 bytes' "$long"
engines '9000 bytes: packets' rxonly rxonly 'set txpkts 2000,2000,2000,2000,1014'
[ "$me" = 1 ] || go '9000 bytes: send' 'start tx_first 2'
agree '9000 bytes: the same' 9014
go '9000 bytes: over' stop
leave '9000 bytes: quit'

launch 'default arguments' '-- -i --total-num-mbufs=4096'
engines 'one way' rxonly rxonly
[ "$me" = 1 ] || go 'one way: send' 'start tx_first 32'
agree 'one way: the same' 64
go 'one way: over' stop

engines 'txonly' txonly rxonly
[ "$me" = 1 ] || { go 'txonly: begin' start; pause 300000; go 'txonly: end' stop; }
agree 'txonly: the same' 64
[ "$me" = 0 ] || {
    go 'txonly: over' stop
    ask 1 compressed
    step 10 'compressed completions' "echo note: $answer; [ $answer -gt 100 ]"
}

for engine in io macswap; do
    engines "$engine" $engine $engine
    [ "$me" = 1 ] || {
        go "$engine: begin" 'start tx_first 2'
        pause 500000
        go "$engine: end" stop 'set fwd rxonly' start
    }
    agree "$engine: the same" 64
    go "$engine: over" stop
done

# rule NAME ACTIONS: the other machine's packets match a rule with a counter.
rule() {
    [ "$me" = 0 ] || go "$1" "flow create 0 ingress pattern eth / ipv4 / udp dst is 9 / end actions count / $2 / end"
    engines "$1: packets" rxonly rxonly
    [ "$me" = 1 ] || go "$1: send" 'start tx_first 4'
}
# counted NAME RECEIVED: what the counter of the only rule has, and how many of these packets testpmd received.
counted() {
    [ "$me" = 0 ] || step 30 "$1" "$talk
        counts() {
            tell 'flow query 0 0 count' > /run/query
            awk '\$1 == \"hits:\" { hits = \$2 } \$1 == \"bytes:\" { bytes = \$2 }
                END { exit !(hits == 128 && bytes == 128 * 64) }' /run/query
        }
        within 20 counts
        counts
        right=\$?
        cat /run/query
        figures 0 | tee /run/figures
        grep -q '^0,0,$2,$(($2 * 64)),0' /run/figures && exit \$right"
    go "$1: over" stop 'flow flush 0'
}
rule 'a rule with a count' 'queue index 0'
agree 'a rule with a count: the same' 64
counted 'a rule with a count: counted' 128
rule 'a rule that drops' 'drop'
counted 'a rule that drops: counted' 0
leave 'quit'

launch 'four queues' '-- -i --total-num-mbufs=4096 --rxq=4 --txq=4 --rxd=512 --txd=512 --rss-udp --txonly-multi-flow'
engines 'four queues: packets' txonly rxonly
[ "$me" = 1 ] || { go 'four queues: begin' start; pause 300000; go 'four queues: end' stop; }
agree 'four queues: the same' 64
[ "$me" = 0 ] || step 30 'four queues: all' "$talk
    tell stop | tee /run/queues
    echo
    awk '\$1 == \"RX-packets:\" && of == 1 { print \"note: packets:\", \$2; if (\$2 > 0) used++ }
        { of = /Forward Stats for RX Port= 0.Queue=/ }
        END { exit used != 4 }' /run/queues"
leave 'four queues: quit'
