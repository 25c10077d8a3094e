# The RDMA CM by IP addresses, at length. The examples' messages are repeated as late as the peer asks for (--patient): its
# machine is emulated, and may take longer than their first repetition waits.
at="--device vfio:$card --patient"
listens='grep -q listening /run/server'
serve="$example/rping $at -s -a 10.1.0.2"
connect="$example/rping $at -c -a 10.1.0.1 -I 10.1.0.2 -S 64 -V"
to_us='rping -c -a 10.1.0.2 -V'
# said TEXT COMMAND: the command, which has to print the text.
said() { echo "{ $2; } > /run/said 2>&1; status=\$?; cat /run/said; grep -qF '$1' /run/said && exit \$status"; }

for net in 10.1.0. fd01::; do
    serving=1
    client_server 120 "rdma_client, our server, $net" "$ready" "$with_ip rdma_server -s ${net}2" "rdma_client -s ${net}2"
    client_server 120 "rdma_client, example server, $net" "$listens" "$example/rdma_server $at -s ${net}2" \
        "rdma_client -s ${net}2"
    serving=0
    client_server 120 "rdma_server, our client, $net" listening_cm "rdma_server -s ${net}1" "$with_ip rdma_client -s ${net}1"
    client_server 120 "rdma_server, example client, $net" listening_cm "rdma_server -s ${net}1" \
        "$example/rdma_client $at -b ${net}2 -s ${net}1"
done

# rdma-core's waits for a message over TCP before it asks for a connection, and makes three rounds of them.
serving=1
client_server 180 'cmtime, example server' "$listens" "$example/cmtime $at -b 10.1.0.2 -c 100 --in-step" \
    "$(said 'Connect (100) test - no QPs' 'cmtime -c 100 -s 10.1.0.2')"
serving=0
client_server 180 'cmtime, example client' 'listening 7471' "$(said 'Accept (100) test - no QPs' 'cmtime -c 100')" \
    "$example/cmtime $at -b 10.1.0.2 -s 10.1.0.1 -c 100 --in-step"

# A thousand connections each way, with which the kernel counts nothing that was sent twice: ours one by one, theirs fifty at a
# time. A kernel that asks OpenSM for many more paths at once, in a machine of one processor, runs out of time.
client_server_fault 180 'a thousand of our example, one by one' listening_cm 'rping -s -P -a 10.1.0.1' \
    "$connect -C 1 --times 1000"
serving=1
for group in $(seq 20); do
    client_server 120 "fifty to our example, $group" "$listens" "$example/ucmatose $at -b 10.1.0.2 -c 50" \
        'ucmatose -s 10.1.0.2 -c 50'
done
barrier
[ "$me" = 1 ] || step 60 'nothing was sent twice' "$counters && ! grep -v '^0$' cm_tx_retries/* cm_rx_duplicates/*"

# Many at once. Ends that are slow to answer are asked again.
serving=0
client_server 240 'a thousand of our example at once' listening_cm 'ucmatose -b 10.1.0.1 -c 1000' \
    "$example/ucmatose $at -b 10.1.0.2 -s 10.1.0.1 -c 1000"
client_server 240 'a thousand of our client at once' listening_cm 'ucmatose -b 10.1.0.1 -c 1000' \
    "$with_ip ucmatose -s 10.1.0.1 -c 1000"
serving=1
for quarter in 1 2 3 4; do
    client_server 120 "a thousand to our server, quarter $quarter" "$ready" "$with_ip ucmatose -b 10.1.0.2 -c 250" \
        'ucmatose -s 10.1.0.2 -c 250'
done
barrier
[ "$me" = 1 ] || step 60 'what was sent twice' "$counters"

# Refusals.
[ "$me" = 0 ] || step 60 'no listener there' "! $connect -C 1"
serving=1
client_server_fault 60 'no listener here' "$listens" "$serve" \
    "$(said 'RDMA_CM_EVENT_REJECTED, error 8' "! $to_us -C 1 -p 7175")"
client_server 60 'refused here' "$listens" "$serve --reject 'not today'" \
    "$(said 'RDMA_CM_EVENT_REJECTED, error 28' "! $to_us -C 1")"
# The kernel's NVMe target rejects other protocols: format 0, status 2, which is an unknown format.
[ "$me" = 1 ] || step 60 'a target' 'modprobe nvmet_rdma &&
    { [ -d /sys/kernel/config/nvmet ] || mount -t configfs none /sys/kernel/config; } && cd /sys/kernel/config/nvmet &&
    mkdir subsystems/disk ports/1 && echo rdma > ports/1/addr_trtype &&
    echo ipv4 > ports/1/addr_adrfam && echo 10.1.0.1 > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid &&
    ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk'
barrier
[ "$me" = 0 ] || step 60 'refused there' "! $connect -p 4420 -C 1 --private-data 'who is there'"
barrier
[ "$me" = 1 ] || step 60 'target ends' 'cd /sys/kernel/config/nvmet && rm ports/1/subsystems/disk &&
    rmdir ports/1 subsystems/disk && rmmod nvmet_rdma nvmet'

# A program without an end is killed after some pings. The peer has to end by itself, in order or with an error.
pings='> /run/pings 2>&1 & victim=$!
    until_true "grep -q \"ping.*5[: ]\" /run/pings"; kill -KILL $victim; wait $victim; echo killed
    # An empty file, so that the next program is not mistaken for this one before it writes.
    : > /run/pings'
in_order='status=$?; echo exit status $status; [ $status -le 1 ]'
client_server 60 'their client is killed, example server' "$listens" "$serve; $in_order" "$to_us -v -C 1000000 $pings"
client_server 60 'their client is killed, our server' "$ready" "$with_ip rping -s -a 10.1.0.2 -V" "$to_us -v -C 1000000 $pings"
serving=0
client_server 60 'their server is killed, example client' listening_cm \
    "rping -s -a 10.1.0.1 -v -C 1000000 $pings" "! $connect -C 1000000"
client_server 60 'their server is killed, our client' listening_cm "rping -s -a 10.1.0.1 -v -C 1000000 $pings" \
    "$(said 'client DISCONNECT EVENT' "$with_ip rping -c -a 10.1.0.1 -V -C 1000000")"
client_server_fault 60 'our client is killed, and comes back' listening_cm 'rping -s -P -a 10.1.0.1' \
    "$connect -v -C 1000000 $pings; $connect -C 5"
# A client that waits for a message has nothing to send, and would never detect the loss of the peer.
serving=1
client_server 60 'our server is killed' 'grep -q listening /run/pings' "$serve -v $pings" \
    "timeout -s KILL 20 $to_us -C 1000000; [ \$? != 0 ]"
client_server 60 'and comes back' "$listens" "$serve" "$to_us -C 5"
barrier
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM'
    step 60 'unload' 'rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
fi
