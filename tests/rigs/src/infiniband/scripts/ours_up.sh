barrier
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager"
    step 90 'port comes up' "$osm"'; until_true "active mlx5_0"; ibstat mlx5_0 1'
    step 90 'theirs sees both' 'until_true "[ \$(ibnetdiscover | grep -c ^Ca) = 2 ]"; ibnetdiscover'
else
    step 90 'ours comes up' "until_true '$ours ibv_devinfo | grep -q PORT_ACTIVE'; $ours ibv_devinfo -v"
    step 60 'example devinfo' "$example/devinfo --device vfio:$card"
fi
barrier
# By IP addresses: ARP, neighbour discovery and echoes over the group of all interfaces.
if [ "$me" = 0 ]; then
    step 60 'interface' 'ip addr add 10.1.0.1/24 dev ib0 && ip addr add fd01::1/64 dev ib0 nodad && ip link set ib0 up &&
        until_true "[ \"\$(cat /sys/class/net/ib0/carrier)\" = 1 ]" && ip link set ib0 mtu 4092 && ip addr show ib0'
fi
barrier
