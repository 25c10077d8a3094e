# Without -F it prints no results where the clocks of a busy machine run unevenly.
write='ib_write_bw -F -R -n 200'
for size in 64 4096; do
    program="rping -C 20 -S $size -V"
    client_server 120 "rping, their client, our server, $size bytes" 'grep -q rdma_listen /run/server' \
        "$ours $program -s -a 10.0.0.1" "$program -c -a 10.0.0.1"
    serving=1
    client_server 120 "rping, our client, their server, $size bytes" listening_cm \
        "$program -s -a 10.0.0.2" "$ours $program -c -a 10.0.0.2"
    serving=0
done
client_server 120 'ib_write_bw, their client, our server' 'grep -q rdma_listen /run/server' "$ours $write" "$write 10.0.0.1"
serving=1
client_server 120 'ib_write_bw, our client, their server' listening_cm "$write" "$ours $write 10.0.0.2"
serving=0
# Both ends send, and look at every byte that they receive. Not with -T a: who waits in rpoll takes it for a failure if the
# other end hangs up before the last data was looked for.
stream='rstream -T v -S 20000 -C 50'
for kind in '' '-T b'; do
    client_server 120 "rstream $kind, their client, our server" 'grep -q rlisten: /run/server' "$ours $stream $kind" \
        "$stream $kind -s 10.0.0.1"
    serving=1
    client_server 120 "rstream $kind, our client, their server" listening_cm "$stream $kind" "$ours $stream $kind -s 10.0.0.2"
    serving=0
done
client_server 120 'riostream, their client, our server' 'grep -q rlisten: /run/server' "$ours riostream -T v -S 20000 -C 50" \
    'riostream -T v -S 20000 -C 50 -s 10.0.0.1'
serving=1
client_server 120 'riostream, our client, their server' listening_cm 'riostream -T v -S 20000 -C 50' \
    "$ours riostream -T v -S 20000 -C 50 -s 10.0.0.2"

# Each end reads and writes memory of the other's through memory windows, and of rdma-core's through indirect keys (mlx5dv, which
# our libraries do not have) as well; what it may not do is refused.
cases() {
    for kind in "$@"; do
        for what in used beyond readonly closed invalidated; do
            # The other end cannot invalidate windows of type 1, nor indirect keys that mlx5dv makes.
            case $kind:$what in
            type1:invalidated | list:invalidated) ;;
            *) printf ' %s:%s' $kind $what ;;
            esac
        done
    done
}
serving=0
client_server 120 'windows of ours' 'grep -q rdma_listen /run/server' "$ours /ours/keys owner 10.0.0.1 7500 $(cases type1 type2 post)" \
    "/ours/keys user 10.0.0.1 7500 $(cases type1 type2 post)"
serving=1
client_server 120 'windows and indirect keys of theirs' listening_cm \
    "/ours/keys owner 10.0.0.2 7500 $(cases type1 type2 post list)" \
    "$ours /ours/keys user 10.0.0.2 7500 $(cases type1 type2 post list)"
serving=0
client_server 60 'operations, their client, our server' 'grep -q rdma_listen /run/server' \
    "$ours /ours/operations server 10.0.0.1 7501" '/ours/operations client 10.0.0.1 7501'
serving=1
client_server 60 'operations, our client, their server' listening_cm '/ours/operations server 10.0.0.2 7501' \
    "$ours /ours/operations client 10.0.0.2 7501"

# Programs that end without a word, one after the other on the same function: Linux hears of each. It took about half a second
# in this machine while the computer was busy.
ends() {
    client_server 120 "ends of $1, heard by Linux" listening_cm '/ours/ends server 10.0.0.2 6 1000' "$2"
}
ends 'programs in C' "$ours /ours/ends client 10.0.0.2 1"
ends 'programs in Rust' "BAREVERBS_DEVICE=vfio:$card /ours/ends-in-rust clients 10.0.0.2"
serving=0
