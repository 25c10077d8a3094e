# An emulated machine may take longer to answer than our first repetition waits.
for net in 10.0.0. fd00::; do
    for size in 64 4096 65535; do
        serving=1
        client_server 180 "rdma-core's client, our server, $net, $size bytes" "$ready" \
            "$serve -a ${net}2 -S $size -V --patient" "rping -c -a ${net}2 -C 20 -S $size -V"
        serving=0
        client_server 180 "our client, rdma-core's server, $net, $size bytes" listening_cm \
            "rping -s -a ${net}1 -C 20 -S $size -V" "$connect -a ${net}1 -I ${net}3 -C 20 -S $size -V --patient"
    done
done
barrier
[ $me = 1 ] || step 180 'nothing was sent twice' "$not_twice"
