state=/sys/class/infiniband/mlx5_0/ports/1/state
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs'
host link 0 down
step 60 'cable out' "until_true 'grep -q DOWN $state'; cat $state"
host link 0 up
step 60 'cable in' "until_true 'grep -q ACTIVE $state'; cat $state"
host health 0 1
step 60 'stopped' "until_true 'dmesg | grep -q \"Fatal error\"'"
step 120 'without firmware' 'rmmod mlx5_ib; rmmod mlx5_core'
step 60 'reset' 'echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset'
step 60 'after it' "modprobe mlx5_ib && cat $state"
host vanish 0
step 60 'gone' "until_true 'dmesg | grep -q \"Fatal error\"'"
step 120 'without card' 'rmmod mlx5_ib; rmmod mlx5_core'
