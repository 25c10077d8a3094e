step 60 'probe 1' 'modprobe mlx5_core && ls /sys/bus/auxiliary/devices'
step 60 'remove 1' 'rmmod mlx5_core'
