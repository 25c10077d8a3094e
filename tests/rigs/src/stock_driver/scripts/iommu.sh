step 60 'groups' 'ls /sys/kernel/iommu_groups/*/devices'
for round in 1 2; do
    step 60 "load $round" 'modprobe mlx5_ib && modprobe ib_uverbs'
    program='ibv_rc_pingpong -c -n 200 -d mlx5_0'
    client_server 120 "rc $round" 'listening 18515' "$program" "$program 127.0.0.1"
    program='ibv_srq_pingpong -c -n 200 -e -d mlx5_0'
    client_server 120 "srq $round" 'listening 18515' "$program" "$program 127.0.0.1"
    step 60 "unload $round" 'rmmod mlx5_ib && rmmod mlx5_core'
done
