# A kernel's own protocol: NVMe over RoCE, whose host registers memory with every command and whose target ends that.
roce_up rdma_ucm
barrier
case $me in
0)
    step 60 'target' 'modprobe nvmet_rdma && modprobe null_blk nr_devices=1 gb=1 memory_backed=1 &&
        { [ -d /sys/kernel/config/nvmet ] || mount -t configfs none /sys/kernel/config; } && cd /sys/kernel/config/nvmet &&
        mkdir -p subsystems/disk/namespaces/1 && echo 1 > subsystems/disk/attr_allow_any_host &&
        echo -n /dev/nullb0 > subsystems/disk/namespaces/1/device_path && echo 1 > subsystems/disk/namespaces/1/enable &&
        mkdir ports/1 && echo rdma > ports/1/addr_trtype && echo ipv4 > ports/1/addr_adrfam &&
        echo 192.168.1.1 > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid &&
        ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk'
    barrier
    ;;
1)
    barrier
    step 60 'connect' 'modprobe nvme_rdma && echo transport=rdma,traddr=192.168.1.1,trsvcid=4420,nqn=disk > /dev/nvme-fabrics &&
        until_true "[ -b /dev/nvme0n1 ]"'
    step 120 'write' 'dd if=/dev/urandom of=/data bs=65536 count=64 && dd if=/data of=/dev/nvme0n1 bs=65536 conv=fsync &&
        echo 3 > /proc/sys/vm/drop_caches'
    step 120 'read' 'dd if=/dev/nvme0n1 bs=65536 count=64 of=/back && cmp /data /back'
    step 60 'counted' 'cat /sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_*'
    step 60 'disconnect' 'echo 1 > /sys/class/nvme/nvme0/delete_controller'
    ;;
esac
barrier
case $me in
0)
    step 60 'no target' 'cd /sys/kernel/config/nvmet && rm ports/1/subsystems/disk && rmdir ports/1 &&
        echo 0 > subsystems/disk/namespaces/1/enable && rmdir subsystems/disk/namespaces/1 subsystems/disk && cd / &&
        rmmod nvmet_rdma'
    ;;
1) step 60 'no host' 'rmmod nvme_rdma' ;;
esac
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
