# What every scenario begins with: drivers, and what the steps use. The ports have no identifiers yet.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_umad && modprobe ib_uverbs && modprobe ib_ipoib && modprobe rdma_ucm &&
    mkdir -p /run/osm /var/log /var/cache/opensm && ls /sys/class/net'
step 60 'no manager' 'ibstat mlx5_0 1'
# Two partitions with groups of IPoIB for packets of 4096 bytes; all ports are full members of both. Then functions:
# active DEVICE: the port is in use; number DEVICE NAME: what the kernel knows of it, as a decimal number; manager OPTION...: a
# subnet manager in the background; end_manager SIGNAL.
step 60 'files' 'cat > /run/osm/partitions <<LIST
Default=0x7fff, ipoib, mtu=5 : ALL=full ;
Blue=0x0001, ipoib, mtu=5 : ALL=full ;
LIST
cat > /run/osm/functions <<"LIST"
active() { grep -q "4: ACTIVE" "/sys/class/infiniband/$1/ports/1/state"; }
number() { echo $(($(cat "/sys/class/infiniband/$1/ports/1/$2"))); }
manager() {
    setsid opensm -P /run/osm/partitions -f /run/osm/log "$@" > /run/osm/out 2>&1 < /dev/null &
    echo $! > /run/osm/process
}
end_manager() {
    kill "-$1" "$(cat /run/osm/process)"
    until_true "dead $(cat /run/osm/process)"
}
LIST
'
peer_address=10.1.0.$((peer + 1))
export peer_address
barrier
