for round in 1 2 3 4 5 6 7 8 9 10; do
    step 60 "load $round" 'modprobe mlx5_ib && modprobe ib_uverbs'
    host pages 0 300
    step 60 "devinfo $round" 'ibv_devinfo -v'
    program='ibv_srq_pingpong -c -n 20 -d mlx5_0'
    client_server 120 "pingpong $round" 'listening 18515' "$program" "$program 127.0.0.1"
    step 60 "unload $round" 'rmmod mlx5_ib && rmmod mlx5_core'
done
