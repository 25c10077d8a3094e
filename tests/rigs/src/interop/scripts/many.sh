# $count connections to rdma-core's server. An emulated machine may take longer to answer than our first repetition
# waits, so that there is none.
serving=0
client_server_fault 600 'connections to their server' listening_cm 'rping -s -P -a 10.0.0.1' \
    "$connect -a 10.0.0.1 -I 10.0.0.3 -C 1 -S 64 -V --times $count --patient > \"\$run/many\" 2>&1; status=\$?
    cat \"\$run/many\"; sed -n '/ connections in /s/^/note: /p' \"\$run/many\"; exit \$status"
barrier
[ $me = 1 ] || step 180 'nothing was sent twice' "$not_twice"
serving=1
client_server 180 "connections to our server" "$ready" "$serve -a 10.0.0.2 --times 50" \
    'for number in $(seq 50); do rping -c -a 10.0.0.2 -C 1 -V || exit; done'
