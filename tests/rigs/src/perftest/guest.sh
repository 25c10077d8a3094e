# perftest's programs between two processes of this machine, in turns: on Linux's RoCE in software over an ordinary network
# device, with Debian's rdma-core, and on our libraries and their model. $turns is how many turns there are.
step 180 'RoCE' 'modprobe virtio_pci; modprobe virtio_net && modprobe rdma_rxe && modprobe ib_uverbs &&
    until_true "netdev virtio_net" && card=$(netdev virtio_net) && ip link set $card mtu 9000 up &&
    ip address add 10.0.0.1/24 dev $card && rdma link add rdma0 type rxe netdev $card &&
    until_true "grep -q ffff:0a00:0001 /sys/class/infiniband/rdma0/ports/1/gids/*" && ibv_devinfo'
step 60 'libraries' 'cd /ours && ln -s libibverbs.so.1 librdmacm.so.1 && ln -s libibverbs.so.1 libmlx5.so.1'

# Packets of both have up to 4096 bytes. The time-out is 537 ms: the usual one of 67 ms ends connections on a busy computer.
options='-F -m 4096 -u 17'
ours='/ours/bareverbs-run --wire /run/wire --unit'

# measure PROGRAM OPTION...: the program on either one.
measure() {
    client_server 120 "$*, rdma_rxe" 'listening 18515' "$* $options" "$* $options localhost"
    client_server 120 "$*, ours" 'listening 18515' "$ours 1 $* $options" "$ours 2 $* $options localhost"
}

for turn in $(seq $turns); do
    measure ib_send_lat -s 64 -n 1000
    measure ib_send_lat -s 64 -n 1000 -e
    measure ib_write_lat -s 8 -n 1000
    measure ib_send_bw -s 64 -n 20000
    measure ib_write_bw -s 4096 -n 5000
    measure ib_write_bw -s 65536 -n 1000
    measure ib_read_bw -s 65536 -n 1000
done
