# Ten times in the first machine, once more in the next.
rounds='1 2 3 4 5 6 7 8 9 10'
for round in $rounds; do
    step 60 "probe $round" 'modprobe mlx5_core && ls /sys/bus/auxiliary/devices'
    step 60 "remove $round" 'rmmod mlx5_core'
done
