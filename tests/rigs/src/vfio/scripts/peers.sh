# Machine 0 has our driver, machine 1 Linux's with rdma-core, on one cable.
card=0000:01:00.0
ours="--device vfio:$card"
case $me in
0) step 60 'ours' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind" ;;
1)
    step 60 'theirs' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && card=$(netdev mlx5_core) &&
        ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
        ip address add 10.0.0.2/24 dev $card &&
        ibv_devinfo -v'
    ;;
esac
barrier
for size in 64 4096 65535; do
    client_server 120 "rdma-core's client, our server, $size bytes" 'grep -q listening /run/server' \
        "/ours/rping -s $ours -a 10.0.0.1 -S $size" "rping -c -a 10.0.0.1 -C 20 -S $size -V -v"
    barrier
    # Machine 0 runs the servers, so this one needs none.
    case $me in
    0)
        exchange "ready$size" 'echo yes'
        step 120 "our client, rdma-core's server, $size bytes" \
            "/ours/rping -c $ours -a 10.0.0.2 -I 10.0.0.1 -C 20 -S $size -V"
        exchange "done$size" 'echo yes'
        ;;
    1)
        step 60 "rdma-core's server starts, $size bytes" \
            "setsid rping -s -a 10.0.0.2 -C 20 -S $size -V > /run/theirs 2>&1 & until_true listening_cm"
        exchange "ready$size" 'echo yes'
        exchange "done$size" 'echo yes'
        step 60 "rdma-core's server ends, $size bytes" \
            'until_true "! pidof rping"; cat /run/theirs; ! grep -i error /run/theirs'
        ;;
    esac
done
