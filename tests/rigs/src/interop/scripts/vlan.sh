# The guest's RoCE has the addresses of the VLAN's device too.
[ $me = 1 ] || step 60 'VLAN' 'modprobe 8021q; card=$(netdev virtio_net) && ip link add link $card name vlan7 type vlan id 7 &&
    ip address add 10.7.0.1/24 dev vlan7 && ip address add fd07::1/64 dev vlan7 nodad && ip link set vlan7 up &&
    until_true "grep -q fd07:0000:0000:0000:0000:0000:0000:0001 /sys/class/infiniband/rdma0/ports/1/gids/*" &&
    until_true "grep -q ffff:0a07:0001 /sys/class/infiniband/rdma0/ports/1/gids/*"'
for net in 10.7.0. fd07::; do
    serving=1
    client_server 60 "rdma-core's client, our server, $net" "$ready" "$serve --vlan 7 -a ${net}2 -S 4096 -V --patient" "rping -c -a ${net}2 -C 20 -S 4096 -V"
    serving=0
    client_server 60 "our client, rdma-core's server, $net" listening_cm \
        "rping -s -a ${net}1 -C 20 -S 4096 -V" "$connect --vlan 7 -a ${net}1 -I ${net}3 -C 20 -S 4096 -V --patient"
done
here="--link $wire --interrupts --vlan 7"
serving=1
client_server 120 "our mckey, rdma-core's sends" "$ready" "$ours/mckey $here -b 10.7.0.2" "$idly mckey -s -b 10.7.0.1 -m 239.192.7.1"
serving=0
client_server 120 "our mckey sends, rdma-core's receives" 'grep -q 0107C0EF /proc/net/igmp' \
    'mckey -b 10.7.0.1 -m 239.192.7.1' "$ours/mckey $here -s -b 10.7.0.3"
barrier
[ $me = 1 ] || step 60 'nothing was sent twice' "$not_twice"
