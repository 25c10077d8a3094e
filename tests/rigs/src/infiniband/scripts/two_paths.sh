barrier
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager"
fi
step 120 'port comes up' "$osm"'; until_true "active mlx5_0"; ibstat mlx5_0 1'
step 60 'topology' 'ibnetdiscover'
# Both ends of every cable are at EDR, and no port's mask and speeds contradict each other.
step 60 'links' 'iblinkinfo > /run/links; cat /run/links
    [ "$(grep -c "25.78125 Gbps Active" /run/links)" = 8 ] && ! grep -q -e "10.0 Gbps" -e "Could be" /run/links'
step 60 'interface' 'ip addr add 10.1.0.$((me + 1))/24 dev ib0 && ip link set ib0 up &&
    until_true "[ \"\$(cat /sys/class/net/ib0/carrier)\" = 1 ]"'
barrier
step 60 'ping' 'ping -c 3 -w 50 $peer_address'
client_server 60 'rping' 'listening_cm' 'rping -s -C 20 -V' 'rping -c -a 10.1.0.1 -C 20 -V'
barrier
# One of the two cables between the switches is cut, then the other in its place.
if [ "$me" = 0 ]; then
    host cable 0 3 down
fi
step 90 'first cable cut' 'until_true "ping -c 1 -w 2 $peer_address"; until_true "[ \$(iblinkinfo -l | grep -c leaf1.*leaf2) -lt 2 ]"'
barrier
if [ "$me" = 0 ]; then
    host cable 0 3 up
    host cable 0 4 down
fi
step 90 'second cable cut' 'until_true "ping -c 1 -w 2 $peer_address"'
client_server 60 'rping on the first' 'listening_cm' 'rping -s -C 20 -V' 'rping -c -a 10.1.0.1 -C 20 -V'
barrier
step 60 'interface gone' 'rmmod rdma_ucm && rmmod ib_ipoib'
barrier
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM'
fi
barrier
step 60 'unload' 'rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
