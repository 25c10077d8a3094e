for round in 1 2 3; do
    step 60 "core $round" 'modprobe mlx5_core'
    step 60 "verbs $round" 'modprobe mlx5_ib && modprobe ib_umad && modprobe rdma_ucm && ls /dev/infiniband'
    step 60 "devinfo $round" 'ibv_devinfo -v'
    step 60 "clients off $round" 'rmmod rdma_ucm && rmmod ib_umad'
    step 60 "verbs off $round" 'rmmod mlx5_ib'
    step 60 "core off $round" 'rmmod mlx5_core'
done
