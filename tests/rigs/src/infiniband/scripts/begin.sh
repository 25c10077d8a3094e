# What every scenario begins with: drivers, and what the steps use. The ports have no identifiers yet.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_umad && modprobe ib_uverbs && modprobe ib_ipoib && modprobe rdma_ucm &&
    mkdir -p /run/osm /var/log /var/cache/opensm && ls /sys/class/net'
step 60 'no manager' 'ibstat mlx5_0 1'
peer_address=10.1.0.$((peer + 1))
export peer_address
