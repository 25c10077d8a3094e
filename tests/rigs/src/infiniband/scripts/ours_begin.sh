# Machine 0 has Linux's driver, and the subnet manager; machine 1 has our libraries and examples on vfio-pci. Both have rdma-core's
# programs.
card=0000:01:00.0
libraries=/run/libraries
ours="env LD_LIBRARY_PATH=$libraries BAREVERBS_DEVICE=vfio:$card BAREVERBS_LOG=info"
with_ip="$ours BAREVERBS_ADDRESS=10.1.0.2/24,fd01::2/64"
# The programs in Rust.
example='env RUST_LOG=info /ours'
theirs=fe80::2:c903:0:101
own=fe80::2:c903:0:201
# Where Linux has 239.0.0.9 for ids (cma_set_mgid).
group=ff12:4001:ffff::f00:9
ready='grep -q rdma_listen /run/server'
# The list of ids has none with a GID.
waits='grep -q ucma_get_event /proc/$(pidof ucmatose udaddy)/wchan'
# counters: what the kernel counted of connection messages that were sent or came more than once.
counters='cd /sys/class/infiniband/mlx5_0/ports/1 && grep . cm_tx_retries/* cm_rx_duplicates/*'
case $me in
0)
    step 60 'theirs' 'modprobe mlx5_ib && modprobe ib_umad && modprobe ib_uverbs && modprobe ib_ipoib && modprobe rdma_ucm &&
        mkdir -p /run/osm /var/log /var/cache/opensm'
    ;;
1)
    step 60 'ours' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind &&
        mkdir $libraries && for name in libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1; do
            ln -s /ours/libibverbs.so.1 $libraries/\$name || exit 1
        done"
    step 60 'ours without a manager' "$ours ibv_devinfo -v"
    ;;
esac
