# Behind libraries.sh and transports.sh: the time stamps of completions at both ends of a ping-pong.

# average: cycles of the device's clock from one receive to the next, by the completions' stamps.
average='awk "/^Average receive completion clock cycles/ { print int(\$NF) }"'
# stamps NAME: both ends wait for each other, so that their clocks run as fast if their averages are the same. And by the time of
# day it is the clock that the card says it has.
stamps() {
    exchange average '[ $me != $serving ] || cp /run/server /run/stamps
        eval "$average /run/stamps"'
    step 10 "$1: averages" "mine=\$($average /run/stamps); echo \"note: \$mine cycles at this end, $answer at the other\"
        awk -v mine=\$mine -v peer=$answer 'BEGIN { exit !(mine > 0 && mine < 1.1 * peer && peer < 1.1 * mine) }'"
    [ "$me" = 1 ] || step 10 "$1: the clock's rate" "khz=\$(awk '/hca_core_clock_khz/ { print \$2 }' /run/devinfo)
        awk -v khz=\$khz '/^Average receive/ { cycles = \$NF } / usec.iter/ { usec = \$(NF - 1) }
            END { is = 1000 * cycles / usec; printf \"note: %d kHz, and the card says %d\n\", is, khz
                exit !(is > 0.75 * khz && is < 1.33 * khz) }' /run/stamps"
    barrier
}
[ "$me" = 1 ] || step 30 'clock' "/ours/devinfo --device vfio:$card > /run/devinfo; grep hca_core_clock_khz /run/devinfo"
barrier
program='ibv_rc_pingpong -t -n 500'
kept='> /run/stamps; right=$?; cat /run/stamps; exit $right'
client_server 60 'their client, our server' 'listening 18515' "$ours $program -g 0" \
    "$program -g \$(cat /run/gid) 192.168.1.1 $kept"
stamps 'their client, our server'
serving=1
client_server 60 'our client, their server' 'listening 18515' "$program -g \$(cat /run/gid)" \
    "$ours $program -g 0 192.168.1.2 $kept"
stamps 'our client, their server'
