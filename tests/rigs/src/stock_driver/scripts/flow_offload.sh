# Rules of tc in the card's flow tables: what they count, what they drop, and the headers that they change.
mine=$((me + 1))
other=$((peer + 1))
card='card=$(netdev mlx5_core)'

step 60 'load' 'until_true "netdev mlx5_core"'
step 60 'up' "$card"' && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && arp -s 192.168.1.'$other' 02:c9:00:00:00:0'$other' &&
    arp -s 192.168.1.9 02:c9:00:00:00:0'$other
barrier
step 60 'ping' "ping -c 2 -i 0.2 -w 30 192.168.1.$other"
step 60 'offload' "$card; ethtool -K \$card hw-tc-offload on && ethtool -k \$card | grep hw-tc-offload &&
    tc qdisc add dev \$card ingress"

# add HANDLE FILTER: a rule in the card only, of the device $card. show HANDLE: what tc says of it.
add='add() { handle=$1; shift; tc filter add dev $card ingress protocol ip pref 1 handle $handle flower skip_sw "$@" && show $handle | grep -wq in_hw; }
    show() { tc -s filter get dev $card ingress protocol ip pref 1 handle $1 flower; }'
# rule NAME FILTER: the first rule, of machine 1.
rule() {
    [ "$me" = 0 ] || step 60 "$1" "$card; $add; tc filter del dev \$card ingress; add 1 $2; good=\$?; tc -s filter show dev \$card ingress; exit \$good"
}
# counted NAME HANDLE PACKETS BYTES: what the card says of a rule. mlx5_core asks it once a second.
counted() {
    barrier
    [ "$me" = 0 ] || step 60 "$1" "$card; $add
        within 10 'show $2 | tee /run/rule | grep -q \"Sent [a-z ]*$4 bytes $3 pkt\"'; right=\$?
        cat /run/rule; exit \$right"
    barrier
}
# received NAME COMMAND WANTED: machine 0 executes the command, after which machine 1's IP stack has so many echo requests more.
received() {
    barrier
    [ "$me" = 0 ] || step 30 "before $1" 'awk "/^Icmp:/ && ++lines == 2 { print \$10 }" /proc/net/snmp | tee /run/before'
    barrier
    [ "$me" = 1 ] || step 60 "$1" "$2"
    barrier
    [ "$me" = 0 ] || step 60 "after $1" 'awk "/^Icmp:/ && ++lines == 2 { print \$10 }" /proc/net/snmp | tee /run/after
        [ $(($(cat /run/after) - $(cat /run/before))) = '"$3 ]"
}

rule 'drop' 'ip_proto icmp src_ip 192.168.1.1 action drop'
received 'to be dropped' 'ping -c 5 -i 0.1 -W 1 192.168.1.2; true' 0
counted 'count of the dropped' 1 5 490
rule 'another address' 'ip_proto icmp src_ip 192.168.1.3 action drop'
[ "$me" = 0 ] || step 60 'mark' "$card; $add; add 2 ip_proto icmp src_ip 192.168.1.1 action skbedit mark 7"
received 'to be marked' 'ping -c 5 -i 0.1 -W 1 192.168.1.2' 5
counted 'count of the marked' 2 5 490
counted 'count of another address' 1 0 0

# Address and port of a server that machine 0 connects to, and of what comes back.
rule 'change the destination' 'ip_proto tcp dst_ip 192.168.1.9 dst_port 5000 action pedit ex munge ip dst set 192.168.1.2 munge tcp dport set 5001 pipe action csum ip and tcp pipe action ok'
[ "$me" = 1 ] || step 60 'change the source' "$card; ethtool -K \$card gro off; $add; add 1 ip_proto tcp src_ip 192.168.1.2 src_port 5001 action pedit ex munge ip src set 192.168.1.9 munge tcp sport set 5000 pipe action csum ip and tcp pipe action ok"
# A program of nc's ends when the other end does.
[ "$me" = 0 ] || step 60 'a server that takes' 'mkfifo /run/open; nc -l -p 5001 <> /run/open > /run/got 2>&1 & within 10 "listening 5001"'
barrier
[ "$me" = 1 ] || step 60 'text to the changed port' 'seq 1 20000 | nc 192.168.1.9 5000'
[ "$me" = 0 ] || step 60 'text from the changed port' 'seq 1 20000 > /run/wanted; within 10 "cmp -s /run/wanted /run/got"; right=$?; ls -l /run; exit $right'
barrier
[ "$me" = 0 ] || step 60 'a server that gives' '(seq 1 30000 | nc -l -p 5001) > /dev/null 2>&1 & within 10 "listening 5001"'
barrier
[ "$me" = 1 ] || step 60 'answers from the changed port' 'mkfifo /run/open; seq 1 30000 > /run/wanted; nc 192.168.1.9 5000 <> /run/open > /run/got; cmp /run/wanted /run/got'
barrier
# Without GRO each segment is counted by the IP stack as it came.
[ "$me" = 1 ] || step 60 'count of the changed' "$card; $add
    segments=\$(awk '/^Tcp:/ && ++lines == 2 { print \$11 }' /proc/net/snmp); echo segments: \$segments; [ \$segments -gt 20 ] &&
        within 10 'show 1 | tee /run/rule | grep -q \"Sent hardware [0-9]* bytes \$segments pkt\"'; right=\$?; cat /run/rule; exit \$right"
step 60 'no rules' "$card; tc qdisc del dev \$card ingress && ethtool -K \$card hw-tc-offload off"
received 'without rules' 'ping -c 5 -i 0.1 -W 1 192.168.1.2' 5
