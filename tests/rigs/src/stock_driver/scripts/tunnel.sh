# Frames in VXLAN, whose inner checksums and large sends the card does.
mine=$((me + 1))
other=$((peer + 1))
card='card=$(netdev mlx5_core)'

step 60 'load' 'modprobe mlx5_core && netdev mlx5_core && modprobe vxlan'
step 60 'up' "$card"' && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier" && ip address add 192.168.1.'$mine'/24 dev $card &&
    arp -s 192.168.1.'$other' 02:c9:00:00:00:0'$other
step 60 'offers' "$card; ethtool -k \$card | grep tx-udp_tnl"

# through NAME NETWORK PORT OPTION: text by TCP through a tunnel, in large sends with checksums of the inner headers, which the
# driver counts; the other machine's IP stack checks them.
through() {
    step 60 "$1" "ip link add $1 address 02:00:00:00:$2:0$mine type vxlan id $2 remote 192.168.1.$other dstport $3 $4 &&
        ip address add 10.0.$2.$mine/24 dev $1 && ip link set $1 mtu 1450 up && arp -s 10.0.$2.$other 02:00:00:00:$2:0$other"
    barrier
    [ "$me" = 0 ] || step 60 "$1: a server" "mkfifo /run/$1; nc -l -p 5001 <> /run/$1 > /run/got 2>&1 & within 10 'listening 5001'"
    [ "$me" = 1 ] || step 30 "$1: counters" "$card; ethtool -S \$card | grep -E ' tx_(csum_partial_inner|tso_inner_packets|tso_inner_bytes):' | tee /run/before"
    barrier
    [ "$me" = 1 ] || step 60 "$1: text" "seq 1 200000 | nc 10.0.$2.$other 5001"
    [ "$me" = 0 ] || step 60 "$1: text that came" "seq 1 200000 > /run/wanted; within 30 'cmp -s /run/wanted /run/got'; right=\$?; ls -l /run; exit \$right"
    [ "$me" = 1 ] || step 60 "$1: what was counted" "$card; ethtool -S \$card | grep -E ' tx_(csum_partial_inner|tso_inner_packets|tso_inner_bytes):' | tee /run/after
        awk 'NR == FNR { old[\$1] = \$2; next } { grew[\$1] = \$2 - old[\$1] }
            END { exit !(grew[\"tx_csum_partial_inner:\"] > 0 && grew[\"tx_tso_inner_packets:\"] > 0 && grew[\"tx_tso_inner_bytes:\"] > 100000) }' /run/before /run/after"
    barrier
}
through standard 42 4789 noudpcsum
through another 43 8472 noudpcsum
through summed 44 4789 udpcsum
step 60 'unload' 'ip link del standard && ip link del another && ip link del summed && rmmod mlx5_core'
