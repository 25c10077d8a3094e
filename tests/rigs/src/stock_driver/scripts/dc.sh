# perftest's programs over dynamic connections (mlx5dv's DCI and DCT) and RoCE. Their numbers mean nothing.
roce_up ib_uverbs rdma_ucm
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
