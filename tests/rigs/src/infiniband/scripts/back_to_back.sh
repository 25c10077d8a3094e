barrier
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager"
fi
step 90 'port comes up' "$osm"'; until_true "active mlx5_0"; ibstat mlx5_0 1; [ "$(number mlx5_0 lid)" != 0 ]'
step 60 'partitions' 'until_true "grep -q 0x8001 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*"
    grep -h . /sys/class/infiniband/mlx5_0/ports/1/pkeys/* | grep -v 0x0000'
exchange lid 'echo $(($(cat /sys/class/infiniband/mlx5_0/ports/1/lid)))'
export peer_lid=$answer
# What the programs for diagnosis read of the ports themselves, and of OpenSM's records.
step 60 'topology' 'ibnetdiscover'
step 60 'links' 'iblinkinfo'
step 60 'errors' 'ibqueryerrors'
step 60 'nodes by record' 'saquery -N'
step 60 'ports by record' 'saquery PIR'
step 60 'groups by record' 'saquery -g'
step 60 'manager by query' 'sminfo'
step 60 'other port' 'smpquery portinfo $peer_lid 1'
step 60 'counters of the other port' 'perfquery -x $peer_lid 1'
barrier
# IPoIB on the default partition and on another.
step 60 'interface' 'ip addr add 10.1.0.$((me + 1))/24 dev ib0 && ip link set ib0 up &&
    until_true "[ \"\$(cat /sys/class/net/ib0/carrier)\" = 1 ]" && ip link set ib0 mtu 4092 && ip addr show ib0'
barrier
step 60 'ping' 'ping -c 3 -w 50 $peer_address && ping -c 3 -w 50 -M do -s 4064 $peer_address'
step 60 'ping v6' 'ping -6 -c 3 -w 50 fe80::202:c903:0:$((peer + 1))01%ib0'
client_server 90 'iperf3' 'listening 5201' 'iperf3 -s -1' 'iperf3 -c 10.1.0.1 -t 3'
step 60 'interface in a partition' 'ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001 &&
    ip addr add 10.2.0.$((me + 1))/24 dev ib0.8001 && ip link set ib0.8001 up &&
    until_true "[ \"\$(cat /sys/class/net/ib0.8001/carrier)\" = 1 ]" && ip -d link show ib0.8001'
barrier
step 60 'ping in the partition' 'ping -c 3 -w 50 10.2.0.$((peer + 1))'
barrier
# Linux's RDMA CM, by IP addresses.
client_server 60 'rping' 'listening_cm' 'rping -s -C 20 -V' 'rping -c -a 10.1.0.1 -C 20 -V'
client_server 90 'ucmatose' 'listening_cm' 'ucmatose -c 20' 'ucmatose -c 20 -s 10.1.0.1'
client_server 60 'udaddy' 'listening_cm' 'udaddy' 'udaddy -s 10.1.0.1'
client_server 60 'rdma_client' 'listening_cm' 'rdma_server' 'rdma_client -s 10.1.0.1'
client_server 60 'rping in the partition' 'listening_cm' 'rping -s -C 5 -V' 'rping -c -a 10.2.0.1 -C 5 -V'
barrier
# The cable of the first machine.
if [ "$me" = 0 ]; then
    host link 0 down
fi
step 60 'cable out' "$osm"'; [ $me = 1 ] || until_true "! active mlx5_0"; ibstat mlx5_0 1'
barrier
if [ "$me" = 0 ]; then
    host link 0 up
fi
step 90 'cable in' "$osm"'; until_true "active mlx5_0"; until_true "ping -c 1 -w 2 $peer_address"'
barrier
# A manager that gives every port two identifiers, others than before, while interfaces live.
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM; number mlx5_0 lid > /run/osm/before'
    step 60 'another manager' "$osm"'; manager -r -l 1'
fi
barrier
step 90 'two identifiers' "$osm"'; until_true "[ \$(number mlx5_0 lid_mask_count) = 1 ]"; until_true "active mlx5_0"; ibstat mlx5_0 1'
barrier
step 90 'ping again' 'ping -c 1 -w 80 $peer_address'
client_server 60 'rping again' 'listening_cm' 'rping -s -C 5 -V' 'rping -c -a 10.1.0.1 -C 5 -V'
barrier
# A second manager, of which the first one is in the way until it is killed. It asks for the first one every second, and goes
# without two answers, where otherwise it would be every ten seconds and four answers.
if [ "$me" = 1 ]; then
    step 60 'second manager' "$osm"'; mkdir -p /etc/opensm
    printf "sminfo_polling_timeout 1000\npolling_retry_number 2\n" > /etc/opensm/opensm.conf
    manager -l 1; until_true "grep -q STANDBY /run/osm/log /run/osm/out"; sminfo'
fi
barrier
if [ "$me" = 0 ]; then
    step 60 'first manager killed' "$osm"'; end_manager KILL'
fi
barrier
if [ "$me" = 1 ]; then
    step 120 'taken over' "$osm"'; until_true "[ \$(number mlx5_0 sm_lid) = \$(number mlx5_0 lid) ]"; sminfo'
fi
barrier
step 60 'ping under the second' 'ping -c 1 -w 50 $peer_address'
barrier
step 60 'interfaces gone' 'ip link del ib0.8001 && ip link set ib0 down && rmmod rdma_ucm && rmmod ib_ipoib'
barrier
if [ "$me" = 1 ]; then
    step 60 'second manager ends' "$osm"'; end_manager TERM'
fi
barrier
step 60 'unload' 'rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
