# Behind libraries.sh: connections by the connection manager, each end as server and as client.
program='rping -C 20 -V'
client_server 60 'rping, their client, our server' 'grep -q rdma_listen /run/server' "$ours $program -s -a 10.0.0.1" \
    "$program -c -a 10.0.0.1"
serving=1
client_server 60 'rping, our client, their server' listening_cm "$program -s -a 10.0.0.2" "$ours $program -c -a 10.0.0.2"
serving=0
