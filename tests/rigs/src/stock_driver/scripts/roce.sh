# Programs that find each other through TCP, and then use RoCE, both over the card's port.
mine=$((me + 1))
other=$((peer + 1))

step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && ip address add fd00::'$mine'/64 dev $card nodad &&
    until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state" && rdma link'
# Each address has an entry for either version.
gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'; ibv_devinfo -v"
step 60 'versions' 'cd /sys/class/infiniband/mlx5_0/ports/1 && for gid in gids/*; do
    read -r type < gid_attrs/types/${gid#gids/} && read -r text < $gid && echo "${gid#gids/} $text $type"; done 2> /dev/null; true'
step 60 'indices' 'for version in 1 2; do gid_index $version 0000:ffff:c0a8 > /run/v$version || exit; done
    gid_index 2 fd00: > /run/ipv6; grep . /run/v1 /run/v2 /run/ipv6'
barrier
step 60 'ping' "ping -c 1 -w 30 192.168.1.$other"
barrier

for version in 1 2; do
    # The last has no option to check what came.
    for kind in 'rc_pingpong -c' 'uc_pingpong -c' 'ud_pingpong -c' 'srq_pingpong -c' 'xsrq_pingpong'; do
        for events in '' ' -e'; do
            program="ibv_$kind -n 100$events"
            with="-g \$(cat /run/v$version)"
            client_server 120 "$program, v$version" 'listening 18515' "$program $with" "$program $with 192.168.1.1"
        done
    done
done
client_server 120 'ibv_rc_pingpong over IPv6' 'listening 18515' 'ibv_rc_pingpong -c -g $(cat /run/ipv6)' \
    'ibv_rc_pingpong -c -g $(cat /run/ipv6) 192.168.1.1'
step 60 'checksums' 'cat /proc/net/snmp; ethtool -S $(netdev mlx5_core) | grep -E "(rdma|roce|phy):"; rdma statistic show'
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
