# testpmd in both guests, one port each, at the two ends of one cable: machine 1 sends frames without a break, and machine 0
# forwards them back while its instructions are counted.
card=0000:01:00.0
eval "$talk"

step 60 'load' 'modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier"'
prepare

# count_bursts NAME ARGUMENTS: with these arguments of the device. The sender sends now and then, many times what the
# forwarder takes meanwhile one instruction after the other, so that the computer is free for these; what comes while the ring is
# full is lost. Other functions of the driver than those that it chooses on cards would say nothing.
count_bursts() {
    barrier
    if [ "$me" = 1 ]; then
        start_testpmd "$1: sender" "-a $card -- -i --total-num-mbufs=4096"
        step 60 "$1: send" "$talk
            tell 'set fwd txonly' start
            while sleep 0.2; do
                kill -CONT \$(cat /run/pid)
                usleep 4000
                kill -STOP \$(cat /run/pid)
            done > /dev/null 2>&1 & echo \$! > /run/pauses"
        barrier
        barrier
        step 10 "$1: sent" 'kill $(cat /run/pauses); kill -CONT $(cat /run/pid)'
    else
        start_testpmd "$1" "-a $card$2 -- -i --total-num-mbufs=4096"
        step 60 "$1: functions" "$talk
            tell 'show rxq info 0 0' 'show txq info 0 0' 'set fwd io' start > /run/functions
            awk '/^Burst mode:/ { sub(\"Burst mode: *\", \"\"); print \"note: \" (sends++ ? \"send\" : \"receive\") \": \" \$0 }' /run/functions
            cat /run/functions
            grep -q '^Burst mode: Vector' /run/functions && grep -q '^Burst mode: Enhanced MPW' /run/functions"
        barrier
        step 200 "$1: count" "$talk
            within 20 '[ \"\$(figures 0 | cut -d , -f 3)\" -gt 1000 ]' &&
                LD_LIBRARY_PATH=/dpdk /ours/burst_steps \$(cat /run/pid) 32"
        barrier
    fi
    end_testpmd "$1: quit"
}
count_bursts 'default' ''
count_bursts 'no compression' ',rxq_cqe_comp_en=0'
