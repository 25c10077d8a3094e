to_us='rping -c -a 10.0.0.2 -V'
to_them="$connect -a 10.0.0.1 -I 10.0.0.3 -S 64 -V"
[ $me = 0 ] || step 180 'no listener there' "! $to_them -C 1"
serving=1
client_server_fault 180 'no listener here' "$ready" "$serve -a 10.0.0.2" "! $to_us -C 1 -p 7175"
client_server 180 'refused here' "$ready" "$serve -a 10.0.0.2 --reject 'not today'" "! $to_us -C 1"

# A program without an end is killed after some pings. The peer has to end by itself, in order or with an error.
pings='> "$run/pings" 2>&1 & victim=$!
    until_true "grep -q \"ping.*5[: ]\" \"$run/pings\""; kill -KILL $victim; wait $victim; echo killed
    # An empty file, so that the next program is not mistaken for this one before it writes.
    : > "$run/pings"'
in_order='status=$?; echo exit status $status; [ $status -le 1 ]'
client_server 180 'their client is killed' "$ready" "$serve -a 10.0.0.2; $in_order" "$to_us -v -C 1000000 $pings"
client_server 180 'and comes back' "$ready" "$serve -a 10.0.0.2" "$to_us -C 5"
serving=0
client_server 180 'their server is killed' listening_cm "rping -s -a 10.0.0.1 -v -C 1000000 $pings" "! $to_them -C 1000000"
client_server 180 'and comes back again' listening_cm 'rping -s -a 10.0.0.1 -V -C 5' "$to_them -C 5"
# A killed client comes back with the same queue pair number, and a receive posted. Linux's CM rejects it while the old
# connection exists, disconnects that, and accepts the number when it is asked again.
client_server_fault 180 'our client is killed, and comes back' listening_cm 'rping -s -P -a 10.0.0.1' \
    "$to_them -v -C 1000000 $pings; $to_them -C 5"
# A client that waits for a message has nothing to send, and would never detect the loss of the peer.
serving=1
client_server 180 'our server is killed' 'grep -q listening "$run/pings"' "$serve -a 10.0.0.2 -v $pings" \
    "timeout -s KILL 20 $to_us -C 1000000; [ \$? != 0 ]"
client_server 180 'and comes back at last' "$ready" "$serve -a 10.0.0.2" "$to_us -C 5"

# The kernel's NVMe target rejects other protocols: format 0, status 2, which is an unknown format.
[ $me = 1 ] || step 180 'a target' 'modprobe nvmet_rdma && { [ -d /sys/kernel/config/nvmet ] || mount -t configfs none /sys/kernel/config; } &&
    cd /sys/kernel/config/nvmet && mkdir subsystems/disk ports/1 && echo rdma > ports/1/addr_trtype &&
    echo ipv4 > ports/1/addr_adrfam && echo 10.0.0.1 > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid &&
    ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk'
barrier
[ $me = 0 ] || step 180 'refused there' "! $to_them -p 4420 -C 1 --private-data 'who is there'"
barrier
