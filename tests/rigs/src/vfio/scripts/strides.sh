# Behind forwarder.sh: queues that receive into strides and send many frames in a request, and what both ends' ports count meanwhile.
talk="$talk"'
# ours PORT: what is counted of frames that come to this port and leave at the other one.
ours() {
    for what in vport_unicast_packets vport_unicast_bytes packets_phy bytes_phy; do
        counter $1 rx_$what; counter $((1 - $1)) tx_$what
    done
}
counter() {
    awk "/^counters $1:/ { for (at = 1; at < NF; at++) if (\$at == \"$2\") value = \$(at + 1) } END { printf \"%s,\", value }" /run/forwarder
}
# theirs FROM TO: the same of the frames that leave one device of Linux and come to another.
theirs() {
    for what in vport_unicast_packets vport_unicast_bytes packets_phy bytes_phy; do
        ethtool -S $1 | awk "\$1 == \"tx_$what:\" { printf \"%s,\", \$2 }"
        ethtool -S $2 | awk "\$1 == \"rx_$what:\" { printf \"%s,\", \$2 }"
    done
}
'
# counted NAME PORT FROM TO VIA SEED: as spread, with what the ports count.
counted() {
    case $me in
    0) step 30 "$1: our counters before" "$talk rested; ours $2 | tee /run/counters" ;;
    1) step 30 "$1: Linux's counters before" "$talk $devices; theirs $3 $4 | tee /run/counters" ;;
    esac
    barrier
    spread "$@"
    [ "$me" = 0 ] || step 30 "$1: Linux's counters" "$talk $devices
        shares \$(cat /run/counters) \$(theirs $3 $4) | tee /run/counted"
    exchange counters 'cat /run/counted 2> /dev/null'
    [ "$me" = 1 ] || step 30 "$1: our counters" "$talk
        before=\$(cat /run/counters)
        within 10 '[ \$(shares \$before \$(ours $2)) = $answer ]'
        right=\$?
        echo \"note: our ports have counted \$(shares \$before \$(ours $2)), and Linux's $answer\"
        [ \$right = 0 ] && echo $answer | grep '^$count,$count,[1-9][0-9]*,[1-9][0-9]*,$count,$count,[1-9][0-9]*,[1-9][0-9]*,\$'"
    barrier
}
forwards 'strides' '--strides --count'
counted 'strides, from the first to the second' 0 '$one' '$two' $via 5
counted 'strides, from the second to the first' 1 '$two' '$one' 02:c9:00:00:00:02 6
[ "$me" = 1 ] || step 10 'together' 'grep ^strides: /run/forwarder | tail -n 1 |
    awk "{ print \"note: \" \$0 } END { exit !(\$2 > \$5 && \$7 > 0) }"'
ends 'strides end'
