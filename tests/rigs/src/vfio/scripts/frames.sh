# Ethernet frames behind forwarder.sh: raw packet QPs at both ends, and our forwarder's queues.
# vport: frames that Linux's port has sent and received.
vport="vport() { ethtool -S \$1 | awk '\$1 ~ /^[rt]x_vport_unicast_packets:/ { of[\$1] = \$2 }
    END { print of[\"tx_vport_unicast_packets:\"], of[\"rx_vport_unicast_packets:\"] }'; }"
# counted NAME SENT RECEIVED: what Linux's port counts since the last call.
counted() {
    [ "$me" = 0 ] || step 30 "$1: counted" "$devices; $vport
        now() { vport \$one | awk '{ getline old < \"/run/vport\"; split(old, of); print \$1 - of[1], \$2 - of[2] }'; }
        within 10 '[ \"\$(now)\" = \"$2 $3\" ]'
        right=\$?
        echo \"note: Linux's port has sent and received: \$(now)\"
        vport \$one > /run/vport; exit \$right"
    barrier
}
[ "$me" = 0 ] || step 30 'counters' "$devices; $vport
    vport \$one | tee /run/vport"
barrier
# raw NAME FRAMES BACK PROGRAM OPTIONS: each end sends the other so many frames as both are told, and ends when it has got
# them; the other one sends so many back.
raw() {
    mine="-F -B $via -E $mac0"
    theirs="-F -d mlx5_0 -B $mac0 -E $via"
    client_server 60 "$1, their client, our server" 'grep -q "ibv_create_flow: " /run/server' \
        "$ours $4 --server -n $2 $mine $5" "$4 --client -n $2 $theirs $5"
    counted "$1, their client, our server" $2 $3
    serving=1
    # It has a queue pair before it lets frames in, and buffers for them.
    client_server 60 "$1, our client, their server" 'rdma resource show qp | grep -q RAW_PACKET && sleep 2' \
        "$4 --server -n $2 $theirs $5" "$ours $4 --client -n $2 $mine $5"
    serving=0
    counted "$1, our client, their server" $3 $2
}
raw 'latency' 200 200 raw_ethernet_lat ''
raw 'bandwidth' 300 0 raw_ethernet_bw '-s 1500 -r 512'
raw 'UDP' 300 0 raw_ethernet_bw '-s 200 -r 512 -j 10.0.0.2 -J 10.0.0.1 -k 4001 -K 4000'

forwards 'forwarder' ''
spread 'from the first to the second' 0 '$one' '$two' $via 1
spread 'from the second to the first' 1 '$two' '$one' 02:c9:00:00:00:02 2
ends 'forwarder ends'

# Tables that change while frames come, and rules that count: each frame comes through once all the same, and each rule counts
# those of its kind.
forwards 'forwarder that changes' '--change 10 --count'
# rules PORT: frames of its rules, bytes, and how often its table has changed.
talk="$talk"'
rules() {
    awk "/^port $1:/ { line = \$0 } END { split(line, of); for (at = 4; at <= 16; at += 2) printf \"%d,\", of[at]
        printf \"%d,%d,\", of[17], of[19] }" /run/forwarder
}
'
# changing NAME PORT FROM TO VIA SEED
changing() {
    [ "$me" = 1 ] || step 30 "$1: before" "$talk rested; totals $2 | tee /run/before; rules $2 | tee /run/rules"
    barrier
    [ "$me" = 0 ] || step 120 "$1: Linux's queues" "$devices && /ours/flows pass $3 $4 $5 $count $lanes $6 > /run/passed
        status=\$?; cat /run/passed; exit \$status"
    exchange counts 'sed -n "s/^counted //p" /run/passed 2> /dev/null | tr " " ,'
    [ "$me" = 1 ] || step 30 "$1: the rules" "$talk
        before=\$(cat /run/rules)
        within 10 '[ \$(shares \$before \$(rules $2) | cut -d, -f 1-8) = $answer ]'
        right=\$?
        grown=\$(shares \$before \$(rules $2))
        lanes=\$(shares \$(cat /run/before) \$(totals $2))
        echo \"note: the rules, bytes and changes: \$grown (sent: $answer); the forwarder's queues: \$lanes\"
        [ \$right = 0 ] && echo \$grown | awk -F, '{ exit !(\$9 >= 10) }' && echo \$lanes |
            awk -F, '{ for (at = 1; at <= $lanes; at++) { all += \$at; if (\$at == 0) exit 1 } exit all != $count }'"
    barrier
}
changing 'changing, from the first to the second' 0 '$one' '$two' $via 3
changing 'changing, from the second to the first' 1 '$two' '$one' 02:c9:00:00:00:02 4
ends 'forwarder that changes ends'
