# Two guests without Linux's driver of the card: programs on rdma-core's libraries, for which the kernel's verbs ABI is served on a
# function of vfio-pci. $runner, of served-begin.sh, runs them.
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind"
step 60 'another network' 'modprobe virtio_pci && modprobe virtio_net && until_true "netdev virtio_net" &&
    card=$(netdev virtio_net) && ip link set $card up && ip address add 192.168.1.'$((me + 1))'/24 dev $card &&
    until_true "ping -c 1 -W 1 192.168.1.'$((peer + 1))'"'
# Programs ask for devices and ports by netlink.
step 60 'rdma' "$runner rdma dev show && $runner rdma link show && $runner rdma system show"

step 60 'prepare UCX' 'tar -C / -xf /ours/ucx.tar'
barrier
# UCX would put its own function in the place of the preload library's `mmap`.
ucx="env UCX_MODULE_DIR=/ucx UCX_MEM_EVENTS=n LD_LIBRARY_PATH=/ucx $runner"
for program in 'UCX_TLS=rc_x ucp_put_lat' 'UCX_TLS=rc_x tag_bw' 'UCX_TLS=dc_x ucp_get' 'UCX_TLS=dc_x tag_lat'; do
    # It would be a process of MPI if its standard input were no terminal.
    command="env ${program% *} $ucx /ucx/ucx_perftest -t ${program#* } -n 200 -w 10 -p 13337"
    client_server 90 "$program" 'listening 13337' "$command < /dev/console" "$command 192.168.1.1 < /dev/console"
done

# Beside what testpmd sends there are the few frames of 60 bytes by which the other end announces its address.
talk="$talk"'
same() {
    echo "$1,$2,$3" | awk -F, "{ more = \$8 + \$10 - \$1; exit !(more >= 0 && more < 9 && \$2 + 60 * more == \$9 + \$10 * \$11) }"
}
'
eval "$talk"
prepare
pmd="$pmd -a $card,dv_flow_en=0"
# What one end sends is for the other's address, and that one sends it back, with the addresses exchanged.
launch 'testpmd' "-- -i --total-num-mbufs=4096 --eth-peer=0,02:c9:00:00:00:0$((peer + 1))"
engines 'one way' rxonly rxonly
[ "$me" = 1 ] || go 'one way: send' 'start tx_first 32'
agree 'one way: the same' 64
go 'one way: over' stop
engines 'both ways' rxonly macswap
[ "$me" = 1 ] || go 'both ways: send' 'start tx_first 2'
agree 'both ways: the same' 64
go 'both ways: over' stop
leave 'testpmd: quit'
step 10 'no module' '! grep -E "^(mlx5|ib_|rdma)" /proc/modules'
