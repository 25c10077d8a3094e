# perftest's programs over dynamic connections (mlx5dv's DCI and DCT) and RoCE. Their numbers mean nothing.
mine=$((me + 1))
other=$((peer + 1))

step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card &&
    until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state"'
gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'"
barrier
step 60 'ping' "ping -c 1 -w 30 192.168.1.$other"
barrier

# perf READY PROGRAM OPTIONS [SETTING]
perf() {
    client_server 90 "${4:+$4 }$2 $3" "$1" "${4:+$4 }$2 -F $3" "${4:+$4 }$2 -F $3 192.168.1.1"
}

# Each of them is an initiator on one side and a target on the other, and the other way round where it goes both ways.
for test in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do
    for size in 1 1000 65536; do
        perf 'listening 18515' $test "-c DC -s $size -n 50"
    done
done
perf 'listening 18515' ib_atomic_bw '-c DC -n 50'
perf 'listening 18515' ib_atomic_bw '-c DC -n 50 -A FETCH_AND_ADD'
perf 'listening 18515' ib_send_bw '-c DC -s 1000 -n 50 -b'
perf 'listening 18515' ib_write_bw '-c DC -s 4096 -n 50 -q 4'
perf 'listening 18515' ib_send_bw '-c DC -s 64 -n 50 -I 64'
# Linux asks for a target's messages in completions whose queues have entries of 128 bytes.
for size in 1 64; do
    perf 'listening 18515' ib_send_bw "-c DC -s $size -n 50" MLX5_CQE_SIZE=128
done
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
