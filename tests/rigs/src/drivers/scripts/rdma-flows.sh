# Rules of mlx5dv in front of, and behind, two queue pairs of the one function. Optional counters stay on meanwhile: their tables
# are the roots, which Linux could not destroy before tables by DevX that it does not know of.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.1/24 dev $card && until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state" &&
    until_true "gid_index 2 0000:ffff:c0a8 > /dev/null"'
step 30 'count' 'rdma statistic set link mlx5_0/1 optional-counters cc_rx_ce_pkts,cc_tx_cnp_pkts'
step 120 'rules' '/ours/rdma_flows mlx5_0 $(gid_index 2 0000:ffff:c0a8)'
step 30 'count no more' 'rdma statistic unset link mlx5_0/1 optional-counters'
step 60 'unload' 'rmmod mlx5_ib && rmmod mlx5_core'
