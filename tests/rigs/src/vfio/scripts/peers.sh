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

# their_client NAME OPTIONS, with $size bytes: rdma-core's client, our server.
their_client() {
    client_server 120 "rdma-core's client, our server, $1" 'grep -q listening /run/server' \
        "/ours/rping -s $ours -a 10.0.0.1 -S $size $2" "rping -c -a 10.0.0.1 -C 20 -S $size -V -v"
    barrier
}

# our_client NAME OPTIONS: machine 0 runs the servers elsewhere, so this one needs none.
our_client() {
    case $me in
    0)
        exchange ready 'echo yes'
        step 120 "our client, rdma-core's server, $1" \
            "/ours/rping -c $ours -a 10.0.0.2 -I 10.0.0.1 -C 20 -S $size -V $2"
        exchange done 'echo yes'
        ;;
    1)
        step 60 "rdma-core's server starts, $1" \
            "setsid rping -s -a 10.0.0.2 -C 20 -S $size -V > /run/theirs 2>&1 & until_true listening_cm"
        exchange ready 'echo yes'
        exchange done 'echo yes'
        step 60 "rdma-core's server ends, $1" \
            'until_true "! pidof rping"; cat /run/theirs; ! grep -i error /run/theirs'
        ;;
    esac
}

for size in 64 4096 65535; do
    their_client "$size bytes" ''
    our_client "$size bytes" ''
done
# Their card reaches into our memory by the keys of a client, and ours by those of a server, which has no windows.
size=20001
for memory in indirect device; do
    their_client "$memory memory" "--memory $memory"
done
for memory in window indirect device; do
    our_client "$memory memory" "--memory $memory"
done
# Linux's client in version 1 of RoCE; as a server it takes both.
roce_mode() {
    if [ "$me" = 1 ]; then
        step 60 "RoCE v$1" "modprobe configfs && { [ -d /sys/kernel/config/rdma_cm ] || mount -t configfs none /sys/kernel/config; } &&
            mkdir -p /sys/kernel/config/rdma_cm/mlx5_0 && cd /sys/kernel/config/rdma_cm/mlx5_0/ports/1 &&
            echo '$2' > default_roce_mode && cat default_roce_mode"
    fi
    barrier
}
size=4096
roce_mode 1 'IB/RoCE v1'
their_client 'RoCE v1' '--roce-version 1'
our_client 'RoCE v1' '--roce-version 1'
roce_mode 2 'RoCE v2'

# Dynamic connections: each end's initiators, on the other's targets. Where CQs have entries of 128 bytes, Linux asks for
# messages of up to 64 in them.
client_server 60 "dynamic connections, their client, our server" 'grep -q listening /run/server' \
    "/ours/dc -s $ours -a 10.0.0.1 --cqe-scatter" 'MLX5_CQE_SIZE=128 /ours/mlx5dv-dc client 10.0.0.1 7176'
serving=1
client_server 60 "dynamic connections, our client, their server" listening_cm '/ours/mlx5dv-dc server 10.0.0.2 7176' \
    "/ours/dc -c $ours -a 10.0.0.2 -I 10.0.0.1"
