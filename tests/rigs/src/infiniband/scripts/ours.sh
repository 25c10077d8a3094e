serving=1
client_server 120 'ping and rping by IPv4, their client, our server' "$ready" \
    "$with_ip rping -s -a 10.1.0.2 -C 20 -V" \
    'ping -c 3 -w 50 10.1.0.2 && ping -c 3 -w 50 -M do -s 4064 10.1.0.2 && rping -c -a 10.1.0.2 -C 20 -V'
client_server 120 'ping and rping by IPv6, their client, our server' "$ready" \
    "$with_ip rping -s -a fd01::2 -C 20 -V" 'ping -6 -c 3 -w 50 fd01::2 && rping -c -a fd01::2 -C 20 -V'
serving=0
client_server 120 'rping by IPv4, our client, their server' listening_cm 'rping -s -a 10.1.0.1 -C 20 -V' \
    "$with_ip rping -c -a 10.1.0.1 -C 20 -V"
client_server 120 'rping by IPv6, our client, their server' listening_cm 'rping -s -a fd01::1 -C 20 -V' \
    "$with_ip rping -c -a fd01::1 -C 20 -V"
client_server 120 'example rping by IPv4, our client, their server' listening_cm \
    'rping -s -a 10.1.0.1 -C 20 -S 4096 -V' \
    "$example/rping --device vfio:$card -c -a 10.1.0.1 -I 10.1.0.2 -C 20 -S 4096 -V"
serving=1
client_server 120 'example rping by IPv6, their client, our server' 'grep -q listening /run/server' \
    "$example/rping --device vfio:$card -s -a fd01::2 -C 20 -V" 'rping -c -a fd01::2 -C 20 -V'
# TCP of smoltcp's on the interface, with RDMA beside it.
for net in 10.1.0. fd01::; do
    client_server 120 "TCP, ping and rdma_client, our server, $net" 'grep -q listening /run/server' \
        "$example/tcp_echo --device vfio:$card -b ${net}2 -C 2" "
        head -c 300000 /dev/urandom > /run/sent && cat /sys/class/net/ib0/mtu
        nc ${net}2 7 < /run/sent > /run/back & tcp=\$!
        ping -c 3 -w 50 ${net}2 && for number in 1 2; do rdma_client -s ${net}2 || exit; done
        wait \$tcp && cmp /run/sent /run/back && wc -c /run/back"
done
client_server 120 'iperf3, our server' 'grep -q listening /run/server' \
    "$example/tcp_echo --device vfio:$card -b 10.1.0.2 --iperf3 4" 'iperf3_both_ways 10.1.0.2'
serving=0
client_server 120 'TCP and rdma_server, our client' 'listening 7 && listening_cm' "rdma_server -s 10.1.0.1 & rdma=\$!
    mkfifo /run/echo; exec 3<> /run/echo; nc -l -p 7 <&3 >&3; rm /run/echo; wait \$rdma" \
    "$example/tcp_echo --device vfio:$card -b 10.1.0.2 -s 10.1.0.1 -C 1 -S 100000"
barrier
# By GIDs: paths come from OpenSM's subnet administration. Linux looks for a device whose port was active when it read the
# state into its cache; of two events, the one with the older state may be written last (ib_cache_update reads the P_Keys in
# between), so that no device is found until the next event, which a further partition makes.
if [ "$me" = 0 ]; then
    step 60 'another partition' "$osm"'; echo "Green=0x0002 : ALL=full ;" >> /run/osm/partitions &&
        kill -HUP $(cat /run/osm/process) && until_true "grep -q 0x8002 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*"'
fi
barrier
serving=1
client_server 120 'ucmatose by GID, their client, our server' "$ready" \
    "$ours ucmatose -f gid -c 20 -b $own" "until_true 'ucmatose -f gid -c 20 -s $own'"
client_server 120 'udaddy by GID, their client, our server' "$ready" \
    "$ours udaddy -f gid -c 20 -b $own" "udaddy -f gid -c 20 -s $own"
serving=0
client_server 120 'udaddy by GID, our client, their server' "$waits" \
    "udaddy -f gid -c 20 -b $theirs" "$ours udaddy -f gid -c 20 -s $theirs"
client_server 120 'ucmatose by GID, our client, their server' "$waits" \
    "ucmatose -f gid -b $theirs" "$ours ucmatose -f gid -s $theirs"
client_server 120 'example ucmatose by GID, our client, their server' "$waits" \
    "ucmatose -f gid -b $theirs" "$example/ucmatose --device vfio:$card -b gid -s gid:$theirs"
client_server 120 'mckey, our sender by GID, their receiver' 'saquery -g | grep -q :f00:9' \
    'mckey -m 239.0.0.9 -b 10.1.0.1 -c 10' "$ours mckey -M $group -b $own -c 10 -s"
barrier
if [ "$me" = 0 ]; then
    # Linux's requests and replies. Ours may be early when its programs are slow: it counts MRAs for them.
    step 60 'nothing was sent twice' "$counters && ! grep -v '^0$' cm_tx_retries/req cm_tx_retries/rep cm_tx_retries/dreq"
fi
# Twenty requests at once keep Linux's program longer than this manager waits for the first answer: it asks again.
client_server 120 'ucmatose by IPv4, our client, their server' listening_cm 'ucmatose -b 10.1.0.1 -c 20' \
    "$with_ip ucmatose -c 20 -s 10.1.0.1"
barrier
if [ "$me" = 0 ]; then
    step 60 'neighbours' 'ip neigh show dev ib0; saquery -g'
    step 60 'manager ends' "$osm"'; end_manager TERM'
    step 60 'unload' 'rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
fi
