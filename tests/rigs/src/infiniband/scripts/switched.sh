barrier
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager"
fi
step 120 'ports come up' "$osm"'; until_true "active mlx5_0 && active mlx5_1"; ibstat'
step 60 'topology' 'ibnetdiscover'
# Both ends of every cable are at EDR, and no port's mask and speeds contradict each other.
step 60 'links' 'iblinkinfo > /run/links; cat /run/links
    [ "$(grep -c "25.78125 Gbps Active" /run/links)" = 8 ] && ! grep -q -e "10.0 Gbps" -e "Could be" /run/links'
step 60 'switches by record' 'saquery SWIR'
step 60 'switch itself' 'smpquery nodeinfo $(ibnetdiscover | sed -n "s/^Switch.* lid \([0-9]*\) .*/\1/p")'
step 60 'errors' 'ibqueryerrors'
step 60 'tables' 'dump_fts'
barrier
# Both functions of each machine have an interface; what is pinged is on the other machine. All are on one link: each answers
# for its own address only, or requests for a connection come to the other one, whose port has no such address.
step 90 'interfaces' 'echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore && echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce &&
    for at in 0 1; do
        ip addr add 10.$((at + 1)).0.$((me + 1))/24 dev ib$at && ip link set ib$at up &&
        until_true "[ \"\$(cat /sys/class/net/ib$at/carrier)\" = 1 ]" || exit 1
    done; ip addr'
barrier
step 60 'ping' 'ping -c 3 -w 50 10.1.0.$((peer + 1)) && ping -c 3 -w 50 10.2.0.$((peer + 1))'
client_server 60 'rping' 'listening_cm' 'rping -s -C 20 -V' 'rping -c -a 10.1.0.1 -C 20 -V'
client_server 60 'rping between the others' 'listening_cm' 'rping -s -C 20 -V' 'rping -c -a 10.2.0.1 -C 20 -V'
client_server 60 'mckey' 'saquery -g | grep -q :f00:9' 'mckey -m 239.0.0.9 -b 10.1.0.1 -c 10' 'mckey -m 239.0.0.9 -b 10.1.0.2 -s -c 10'
barrier
# The switch sees the cable, and tells the manager (trap 128).
if [ "$me" = 0 ]; then
    host link 3 down
fi
step 90 'cable out' "$osm"'; [ $me = 0 ] || until_true "! active mlx5_1"; until_true "[ \$(saquery -N | grep -c \"Channel Adapter\\|node_type.*CA\\|node_type.*1\") -lt 4 ]"; saquery -N | grep -c lid'
barrier
if [ "$me" = 0 ]; then
    host link 3 up
fi
step 90 'cable in' "$osm"'; until_true "active mlx5_1"; until_true "ping -c 1 -w 2 10.2.0.$((peer + 1))"'
barrier
step 60 'interfaces gone' 'rmmod rdma_ucm && rmmod ib_ipoib'
barrier
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM'
fi
barrier
step 60 'unload' 'rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
