# The runner, on Linux's driver, with the addresses that the other side's device has.
step 60 'load' 'modprobe mlx5_ib && modprobe rdma_ucm && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card mtu 9000 up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 10.0.0.1/24 dev $card && ip address add fd00::1/64 dev $card nodad && until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state"'
for gid in 0000:0000:0000:0000:0000:ffff:0a00:0001 fd00:0000:0000:0000:0000:0000:0000:0001; do
    step 60 "GID $gid" "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'"
done
step 270 'scripts' '/ours/runner < /ours/scripts'
