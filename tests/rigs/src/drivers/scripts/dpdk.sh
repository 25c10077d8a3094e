# testpmd in both guests, one port each, at the two ends of one cable. Its commands come through a pipe.
# testpmd prints whole lines, in order with the echo of its commands.
pmd='LD_LIBRARY_PATH=/dpdk LD_PRELOAD=/dpdk/libstdbuf.so _STDBUF_O=L setsid /dpdk/dpdk-testpmd -d /dpdk/librte_mempool_ring.so.25 -d /dpdk/librte_net_mlx5.so.25 -d /dpdk/librte_net_pcap.so.25 -l 0-1 -a 0000:01:00.0'
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
# figures: packets sent and received, bytes sent and received, and packets that there was no buffer for.
figures() {
    tell "show port stats 0" | awk "{ for (i = 1; i < NF; i++) value[\$i] = \$(i + 1) }
        END { print value[\"TX-packets:\"], value[\"TX-bytes:\"], value[\"RX-packets:\"], value[\"RX-bytes:\"], value[\"RX-missed:\"] }" | tr " " ,
}
# same FIGURES FIGURES BYTES [SEGMENTS HEADERS]: whether the second machine received what the first one sent, which may have
# been cut into segments, each with headers of so many bytes.
same() {
    echo "$1,$2,$3,${4:-1},${5:-0}" |
        awk -F, "{ exit !(\$1 * \$12 == \$8 + \$10 && \$2 + \$1 * (\$12 - 1) * \$13 == \$9 + \$10 * \$11) }"
}
'
eval "$talk"

step 60 'load' 'modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier"'
# EAL loads nothing from below a directory that everybody may write to.
step 60 'prepare' 'chmod 755 / && tar -C / -xf /ours/dpdk.tar && mkdir -p /var && ln -s /run /var/run && echo 0 > /run/count && mkfifo /run/commands &&
    echo 96 > /proc/sys/vm/nr_hugepages && mkdir /dev/hugepages && mount -t hugetlbfs huge /dev/hugepages && grep HugePages /proc/meminfo'

# launch NAME ARGUMENTS: those of EAL, and after -- those of testpmd.
launch() {
    barrier
    step 100 "$1" ": > /run/testpmd
        sleep 100000 > /run/commands 2> /dev/null & echo \$! > /run/writer
        $pmd $2 < /run/commands >> /run/testpmd 2>&1 & echo \$! > /run/pid
        until_true 'grep -q testpmd\> /run/testpmd || dead \$(cat /run/pid)'
        cat /run/testpmd; ! dead \$(cat /run/pid)"
    barrier
}
# leave NAME
leave() {
    barrier
    step 60 "$1" "$talk
        tell quit; kill \$(cat /run/writer); grep -q Bye /run/testpmd"
}
# pause MICROSECONDS
pause() {
    [ ! "$run" ] || usleep "$1"
}
# agree NAME BYTES [SEGMENTS HEADERS]: both machines have counted the same once everything under way has come. Of packets of
# so many bytes the port counts those that came while there was no buffer, but not their bytes.
agree() {
    name=$1
    shift
    times=0
    mine=0,0,0,0,0
    answer=0,0,0,0,0
    while [ "$run" ]; do
        mine=$(figures)
        exchange figures "echo $mine"
        times=$((times + 1))
        if { same $mine $answer $* && same $answer $mine $*; } || [ $times = 50 ]; then
            break
        fi
        usleep 100000
    done
    step 30 "$name" "$talk
        echo 'note: packets and bytes sent, packets and bytes received, packets without a buffer: $mine'
        same $mine $answer $* && same $answer $mine $* && echo $mine$answer | grep -q '[1-9]'"
}
# go NAME COMMAND...: gives testpmd commands in a step.
go() {
    name=$1
    shift
    words=
    for word in "$@"; do
        words="$words '$word'"
    done
    step 60 "$name" "$talk
        tell$words"
}
# engines NAME FIRST SECOND [COMMAND...]: how machine 0 and machine 1 forward; machine 1 begins.
engines() {
    name=$1 first=$2 second=$3
    shift 3
    barrier
    if [ "$me" = 0 ]; then
        go "$name" "$@" "set fwd $first" 'clear port stats all'
    else
        go "$name" "$@" "set fwd $second" 'clear port stats all' start
    fi
    barrier
}

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
    step 10 'compressed completions' "echo note: $answer; [ $answer -gt 1000 ]"
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

# Rules with counters, which count what the other machine sent, and then let none of it through.
rules() {
    [ "$me" = 0 ] || go "$1" "flow create 0 ingress pattern eth / ipv4 / udp dst is 9 / end actions count / $2 / end"
    engines "$1: packets" rxonly rxonly
    [ "$me" = 1 ] || go "$1: send" 'start tx_first 8'
}
rules 'a rule with a count' 'queue index 0'
agree 'a rule with a count: the same' 64
[ "$me" = 0 ] || step 30 'a rule with a count: query' "$talk
    tell 'flow query 0 0 count' 'flow flush 0' | tee /run/query
    figures | tr , ' ' | { read -r _ _ packets bytes _; awk -v packets=\$packets -v bytes=\$bytes '
        \$1 == \"hits:\" { hits = \$2 } \$1 == \"bytes:\" { counted = \$2 } END { exit !(packets == 256 && hits == packets && counted == bytes) }' /run/query; }"
go 'a rule with a count: over' stop
leave 'quit'
