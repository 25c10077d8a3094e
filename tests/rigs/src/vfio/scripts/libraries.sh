# The same programs of Debian's on both machines: machine 0 has them on our libraries and vfio-pci, machine 1 on
# rdma-core's and Linux's driver.
card=0000:01:00.0
libraries=/run/libraries
ours="env LD_LIBRARY_PATH=$libraries BAREVERBS_DEVICE=vfio:$card BAREVERBS_ADDRESS=10.0.0.1/24 BAREVERBS_LOG=info"
# Or on rdma-core's libraries there as well, for which the kernel's verbs ABI is served.
[ -z "${served:-}" ] || ours="/ours/bareverbs-run --uverbs --device vfio:$card --address 10.0.0.1/24 --log info"
case $me in
0)
    step 60 'ours' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind &&
        mkdir $libraries && for name in libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1; do
            ln -s /ours/libibverbs.so.1 $libraries/\$name || exit 1
        done"
    step 60 'our device, as ibv_devinfo prints it' "$ours ibv_devinfo -v"
    ;;
1)
    step 60 'theirs' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && card=$(netdev mlx5_core) &&
        ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
        ip address add 10.0.0.2/24 dev $card &&
        ibv_devinfo -v'
    ;;
esac
barrier
