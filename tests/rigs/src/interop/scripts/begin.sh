# Machine 0 is a guest with Linux's RoCE on an ordinary network device; machine 1 is this computer, with our programs on the
# model. The guest's addresses end in 1, our server's in 2, our client's in 3.

# The guest's rdma0 comes up.
[ $me = 1 ] || step 180 'RoCE' 'modprobe virtio_pci; modprobe virtio_net && modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm &&
    until_true "netdev virtio_net" && card=$(netdev virtio_net) && ip link set $card up &&
    ip address add 10.0.0.1/24 dev $card && ip address add fd00::1/64 dev $card nodad &&
    rdma link add rdma0 type rxe netdev $card &&
    until_true "grep -q fd00:0000:0000:0000:0000:0000:0000:0001 /sys/class/infiniband/rdma0/ports/1/gids/*" &&
    until_true "grep -q ffff:0a00:0001 /sys/class/infiniband/rdma0/ports/1/gids/*" && ibv_devinfo -v'

# The prefix of a step that has to let the kernel run first. rdma-core's mckey takes its queue pairs down without
# waiting for what it has posted, and rdma_rxe, which sends later, loses what it has not sent by then: often all of it,
# unless each post hands over the processor.
[ $me = 1 ] || step 60 'a group of idle processes' 'mkdir /run/groups && mount -t cgroup2 none /run/groups &&
    cd /run/groups && echo +cpu > cgroup.subtree_control && mkdir idle && echo 1 > idle/cpu.idle'
idly='echo $$ > /run/groups/idle/cgroup.procs || exit;'

# This computer starts at once: its first server would run out of time while the guest boots. The machine that waits
# for the other waits longer than any step may take.
idle_limit=700
barrier

# They sleep while they wait, so that the guest gets the processors.
serve="$ours/rping -s --link $wire --interrupts"
connect="$ours/rping -c --link $wire --interrupts"
ready='grep -q listening "$run/server"'

# counters: what the kernel counted of connection messages that were sent or came more than once.
counters='cd /sys/class/infiniband/rdma0/ports/1 && grep . cm_tx_retries/* cm_rx_duplicates/*'
not_twice="$counters && ! grep -v '^0$' cm_tx_retries/* cm_rx_duplicates/*"
