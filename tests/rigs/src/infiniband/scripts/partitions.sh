blue="$ours BAREVERBS_PKEY=0x8001 BAREVERBS_ADDRESS=10.2.0.2/24,fd02::2/64"
barrier
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager"
    step 90 'port comes up' "$osm"'; until_true "active mlx5_0"; ibstat mlx5_0 1'
    # The child needs its parent, which has no address.
    step 60 'interface in a partition' 'until_true "grep -q 0x8001 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*" &&
        ip link set ib0 up && ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001 &&
        ip addr add 10.2.0.1/24 dev ib0.8001 && ip addr add fd02::1/64 dev ib0.8001 nodad && ip link set ib0.8001 up &&
        until_true "[ \"\$(cat /sys/class/net/ib0.8001/carrier)\" = 1 ]" && ip -d link show ib0.8001'
else
    step 90 'ours comes up' "until_true '$ours ibv_devinfo | grep -q PORT_ACTIVE'"
fi
barrier
# By IP addresses that there are in the partition only.
serving=1
client_server 120 'ping and rping in a partition, their client, our server' "$ready" \
    "$blue rping -s -a 10.2.0.2 -C 20 -V" \
    'ping -c 3 -w 50 10.2.0.2 && ping -c 3 -w 50 -M do -s 2016 10.2.0.2 && rping -c -a 10.2.0.2 -C 20 -V'
client_server 120 'the same by IPv6' "$ready" \
    "$blue rping -s -a fd02::2 -C 20 -V" 'ping -6 -c 3 -w 50 fd02::2 && rping -c -a fd02::2 -C 20 -V'
client_server 120 'an interface in the default partition is not there' "$ready" \
    "timeout 10 $ours BAREVERBS_ADDRESS=10.2.0.2/24 rping -s -a 10.2.0.2 -C 1 -V; status=\$?
        # By the signal with busybox, as itself with others.
        [ \$status = 143 ] || [ \$status = 124 ]" \
    'ip neigh flush dev ib0.8001; ! ping -c 2 -w 4 10.2.0.2'
serving=0
client_server 120 'rping in a partition, our client, their server' listening_cm 'rping -s -a 10.2.0.1 -C 20 -V' \
    "$blue rping -c -a 10.2.0.1 -C 20 -V"
client_server 120 'example rping in a partition, our client, their server' listening_cm \
    'rping -s -a fd02::1 -C 20 -S 4096 -V' \
    "$example/rping --device vfio:$card --pkey 0x8001 -c -a fd02::1 -I fd02::2 -C 20 -S 4096 -V"
barrier
if [ "$me" = 0 ]; then
    step 60 'groups of the partition' 'saquery -g; ip neigh show dev ib0.8001'
    # For Linux's list of devices (see ours.sh).
    step 60 'another partition' "$osm"'; echo "Green=0x0002 : ALL=full ;" >> /run/osm/partitions &&
        kill -HUP $(cat /run/osm/process) && until_true "grep -q 0x8002 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*"'
    step 60 'manager stops' 'kill -STOP $(cat /run/osm/process) && until_true "grep -q ^State:.T /proc/\$(cat /run/osm/process)/status"'
fi
barrier
# Subnet administration takes questions and does not answer: route resolution has two seconds (ucmatose's 2000 ms).
if [ "$me" = 1 ]; then
    step 60 'no answer within the time' "begin=\$(date +%s)
        timeout 30 $example/ucmatose --device vfio:$card -b gid -s gid:$theirs > /run/silent 2>&1; status=\$?
        took=\$((\$(date +%s) - begin)); cat /run/silent; echo \"status \$status after \$took s\"
        [ \$status != 0 ] && [ \$status != 124 ] && [ \$took -lt 20 ]"
fi
barrier
if [ "$me" = 0 ]; then
    step 60 'manager goes on' 'kill -CONT $(cat /run/osm/process) && saquery -p'
fi
client_server 120 'ucmatose by GID when it answers again' "$waits" \
    "ucmatose -f gid -b $theirs" "$example/ucmatose --device vfio:$card -b gid -s gid:$theirs"
barrier
# Busy, which OpenSM never says: the model's cable answers so in its place.
if [ "$me" = 1 ]; then
    host busy 1000
fi
barrier
if [ "$me" = 1 ]; then
    step 60 'busy all the time' "timeout 30 $example/ucmatose --device vfio:$card -b gid -s gid:$theirs > /run/busy 2>&1; status=\$?
        cat /run/busy; [ \$status != 0 ] && [ \$status != 124 ]"
    host busy 3
fi
client_server 120 'ucmatose by GID when it was busy' "$waits" \
    "ucmatose -f gid -b $theirs" "$example/ucmatose --device vfio:$card -b gid -s gid:$theirs"
barrier
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM'
    step 60 'unload' 'ip link del ib0.8001 && rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
fi
