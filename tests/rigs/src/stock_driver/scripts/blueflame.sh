# The driver finds out by itself whether what it writes to a doorbell register arrives in bursts: it sends requests that
# differ from those in memory. Then rdma-core writes its short requests there. $combining: whether they do arrive so.
mine=$((me + 1))
other=$((peer + 1))

# taken STEP COUNT: the card took at least so many requests from its registers since the last time, or none if nothing
# arrives in bursts.
before=0
taken() {
    ask $me blue-flame
    if [ "$combining" = yes ]; then
        step 5 "$1" "echo $answer of them; test $((answer - before)) -ge $2"
    else
        step 5 "$1" "echo $answer of them; test $answer -eq 0"
    fi
    before=$answer
}

gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
bring_up() {
    step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
    step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
        ip address add 192.168.1.'$mine'/24 dev $card &&
        until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state" && rdma link'
    step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'; ibv_devinfo -v"
}
bring_up
# The driver waits for 100 ms, which may be too short on a busy computer: then the script tries again. No card rings
# before there is a driver, so that none of this is planned.
for try in 2 3 4 5; do
    ask $me doorbells
    rung=$answer
    ask $me blue-flame
    [ "$combining" = yes ] && [ "$rung" -gt 0 ] && [ "$answer" -eq 0 ] || break
    step 60 "unload before try $try" 'rmmod mlx5_ib mlx5_core'
    bring_up
done
step 60 'indices' 'gid_index 2 0000:ffff:c0a8 > /run/v2'
taken "the driver's test" 1
barrier
step 60 'ping' "ping -c 1 -w 30 192.168.1.$other"
barrier
for kind in rc uc ud; do
    program="ibv_${kind}_pingpong -c -n 100 -s 64"
    with='-g $(cat /run/v2)'
    client_server 120 "$program" 'listening 18515' "$program $with" "$program $with 192.168.1.1"
    # An interrupt between two stores empties the buffer too early, now and then.
    taken "$kind through registers" 50
done
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
