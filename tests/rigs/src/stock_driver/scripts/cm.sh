# Programs that connect through the RDMA CM.
mine=$((me + 1))
other=$((peer + 1))

step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && ip address add fd00::'$mine'/64 dev $card nodad &&
    until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state"'
gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'"
step 60 'indices' 'gid_index 2 0000:ffff:c0a8 > /run/v2'
barrier
step 60 'ping' "ping -c 1 -w 30 192.168.1.$other"
barrier
client_server 60 'rping' listening_cm 'rping -s -C 20 -v' 'rping -c -a 192.168.1.1 -C 20 -v'
client_server 60 'rping with verification' listening_cm 'rping -s -C 20 -V -S 4096' 'rping -c -a 192.168.1.1 -C 20 -V -S 4096'
client_server 60 'rping over IPv6' listening_cm 'rping -s -a fd00::1 -C 20 -V' 'rping -c -a fd00::1 -C 20 -V'
# The CQs' entries have space for such a message in front of the CQE.
program='MLX5_CQE_SIZE=128 ibv_rc_pingpong -c -n 20 -s 64 -g $(cat /run/v2)'
client_server 60 'messages in completions' 'listening 18515' "$program" "$program 192.168.1.1"
client_server 120 'ucmatose' listening_cm 'ucmatose -c 100' 'ucmatose -c 100 -s 192.168.1.1'
client_server 120 'ucmatose with data' listening_cm 'ucmatose -c 10 -C 20 -S 2000' 'ucmatose -c 10 -C 20 -S 2000 -s 192.168.1.1'
client_server 60 'udaddy' listening_cm 'udaddy -c 10' 'udaddy -c 10 -s 192.168.1.1'
# The receiver is ready when its interface has joined the group: 239.1.2.3.
client_server 60 'mckey' 'grep -qi 030201EF /proc/net/igmp' 'mckey -m 239.1.2.3 -b 192.168.1.1' 'mckey -m 239.1.2.3 -b 192.168.1.2 -s'
client_server 60 'rdma_client and rdma_server' listening_cm 'rdma_server' 'rdma_client -s 192.168.1.1'
for kind in r x; do
    client_server 60 "rdma_xclient and rdma_xserver -c $kind" listening_cm "rdma_xserver -c $kind" "rdma_xclient -s 192.168.1.1 -c $kind"
done
client_server 120 'cmtime' listening_cm 'cmtime -c 50' 'cmtime -c 50 -s 192.168.1.1'
client_server 60 'rping again' listening_cm 'rping -s -C 20 -v' 'rping -c -a 192.168.1.1 -C 20 -v'
step 60 'nothing is left' 'rdma resource show; [ -z "$(rdma resource show cm_id)" ]'
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
