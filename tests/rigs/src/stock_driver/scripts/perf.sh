# perftest's programs over RoCE. Under emulation their numbers mean nothing; that they complete does.
roce_up ib_uverbs rdma_ucm
barrier

# perf READY PROGRAM OPTIONS
perf() {
    client_server 90 "$2 $3" "$1" "$2 -F $3" "$2 -F $3 192.168.1.1"
}

for test in ib_write_bw ib_read_bw ib_send_bw ib_send_lat; do
    for size in 1 1000 65536 1048576; do
        perf 'listening 18515' $test "-s $size -n 20"
    done
done
perf 'listening 18515' ib_atomic_bw '-n 100'
perf 'listening 18515' ib_atomic_bw '-n 100 -A FETCH_AND_ADD'
# Inline, and as much as goes inline, and no inline.
for test in ib_write_bw ib_send_bw ib_send_lat; do
    for inline in 0 64 220; do
        perf 'listening 18515' $test "-s 64 -n 100 -I $inline"
    done
done
for size in 1 4096 65536; do
    perf 'listening 18515' ib_send_bw "-s $size -n 50 --use-srq"
    perf 'listening 18515' ib_send_lat "-s $size -n 50 --use-srq"
done
perf 'listening 18515' ib_send_bw '-s 1000 -n 50 --use-srq -q 4'
# ib_write_bw refuses events: nothing completes at its other side.
for test in ib_read_bw ib_send_bw ib_atomic_bw ib_send_lat ib_read_lat ib_atomic_lat; do
    perf 'listening 18515' $test '-n 50 -e'
done
for test in ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_send_lat; do
    perf listening_cm $test '-n 50 -R'
done
for transport in UC UD XRC; do
    perf 'listening 18515' ib_send_bw "-c $transport -s 1000 -n 50"
done
perf 'listening 18515' ib_write_bw '-s 4096 -n 50 -q 8 -b'
perf 'listening 18515' ib_write_bw '-s 4096 -n 56 -l 8'
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
