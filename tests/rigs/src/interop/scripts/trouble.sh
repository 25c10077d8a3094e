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
# So does a client with many connections, whose receives are posted before it connects: all come back at the first attempt.
# The first server waits for one connection more, so that only Linux's CM ends the old ones.
many=200
within=20
ours_many="$ours/ucmatose --link $wire --interrupts --patient -b 10.0.0.3 -s 10.0.0.1 -c $many"
on_port='rdma resource show cm_id | grep -q "state LISTEN .*:'
established='rdma resource show qp | grep -c "type RC state RTS"'
refused=/sys/class/infiniband/rdma0/ports/1/cm_tx_msgs/rej
[ $me = 1 ] || step 60 "a server for more than $many" "ucmatose -c $((many + 1)) -p 7472 > /run/many 2>&1 & until_true '${on_port}7472 \"'"
barrier
[ $me = 0 ] || step 60 "a client with $many connections" "$ours_many -p 7472 > \"\$run/many\" 2>&1 & echo \$! > \"\$run/victim\""
[ $me = 1 ] || step 120 "$many are connected" "until_true '[ \$($established) = $many ]' && cat $refused > /run/refused"
barrier
[ $me = 0 ] || step 60 'it is killed' 'kill -KILL $(cat "$run/victim")'
client_server 180 "all $many come back" "${on_port}7473 \"" "ucmatose -c $many -p 7473" \
    "before=\$(date +%s%N); timeout -s KILL $within $ours_many -p 7473 || exit; echo note: $many connections after \$(((\$(date +%s%N) - before) / 1000000)) ms"
[ $me = 1 ] || step 60 'each was refused as stale' "[ \$((\$(cat $refused) - \$(cat /run/refused))) -ge $many ]"

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
