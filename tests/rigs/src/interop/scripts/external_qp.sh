# One program on rdma-core's libraries and on ours, whose queue pairs are its own.
here="env LD_LIBRARY_PATH=$ours/libraries BAREVERBS_LINK=$wire"
theirs=/ours/external_qp
program=$ours/libraries/external_qp
serving=1
client_server 60 "to our server" "$ready" "$here BAREVERBS_UNIT=2 $program server 7471" \
    "ip neighbour flush all; $theirs client 10.0.0.2 7471"
serving=0
client_server 60 "to their server" "$ready" "$theirs server 7471" \
    "$here BAREVERBS_UNIT=3 $program client 10.0.0.1 7471"
# Neither machine ends before all of it was recorded.
barrier
