# One program on rdma-core's libraries and on ours. Its client is refused by listeners for other types first.
here="env LD_LIBRARY_PATH=$ours/libraries BAREVERBS_LINK=$wire"
theirs=/ours/port_space_ib
program=$ours/libraries/port_space_ib
ask='ip neighbour flush all'
for type in rc uc ud; do
    serving=1
    client_server 120 "$type, to our server" "$ready" "$here BAREVERBS_UNIT=2 $program server $type 7471" \
        "$ask; $theirs client $type 10.0.0.2 7471"
    serving=0
    client_server 120 "$type, to their server" "$ready" "$theirs server $type 7471" \
        "$here BAREVERBS_UNIT=3 $program client $type 10.0.0.1 7471"
done
# Neither machine ends before all of it was recorded.
barrier
