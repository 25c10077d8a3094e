# Packets in VXLAN and GRE, whose inner checksums and large sends the card does, and whose inner checksums it verifies.
mine=$((me + 1))
other=$((peer + 1))
card='card=$(netdev mlx5_core)'
sent=' tx_(csum_partial_inner|tso_inner_packets|tso_inner_bytes):'
# What the driver counts if the card says that inner and outer checksums are right, and if it says that they are not.
came=' rx_(csum_unnecessary_inner|csum_none):'

step 60 'load' 'modprobe mlx5_core && netdev mlx5_core && modprobe -a vxlan ip_gre'
step 60 'up' "$card"' && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier" && ip address add 192.168.1.'$mine'/24 dev $card &&
    arp -s 192.168.1.'$other' 02:c9:00:00:00:0'$other
step 60 'offers' "$card; ethtool -k \$card | grep -e tx-udp_tnl -e tx-gre"
# Otherwise the driver takes the card's sum over the packet instead of its verdicts.
step 60 'verdicts' "$card; ethtool --set-priv-flags \$card rx_no_csum_complete on && ethtool --show-priv-flags \$card"

# through NAME NETWORK KIND...: text by TCP through a tunnel, in large sends with checksums of the inner headers, which the
# driver counts; the other machine's driver counts packets whose inner checksums the card found right, and no other.
through() {
    name=$1
    net=$2
    shift 2
    case $1 in
    vxlan | gretap) address="address 02:00:00:00:$net:0$mine" neighbour="arp -s 10.0.$net.$other 02:00:00:00:$net:0$other" ;;
    *) address='' neighbour=true ;;
    esac
    step 60 "$name" "ip link add $name $address type $* remote 192.168.1.$other &&
        ip address add 10.0.$net.$mine/24 dev $name && ip link set $name mtu 1430 up && $neighbour"
    barrier
    [ "$me" = 0 ] || step 60 "$name: a server" "mkfifo /run/$name; nc -l -p 5001 <> /run/$name > /run/got 2>&1 & within 10 'listening 5001'"
    [ "$me" = 1 ] || step 30 "$name: counters" "$card; ethtool -S \$card | grep -E '$sent' | tee /run/before"
    [ "$me" = 0 ] || step 30 "$name: counters" "$card; ethtool -S \$card | grep -E '$came' | tee /run/before"
    barrier
    [ "$me" = 1 ] || step 60 "$name: text" "seq 1 200000 | nc 10.0.$net.$other 5001"
    [ "$me" = 0 ] || step 60 "$name: text that came" "seq 1 200000 > /run/wanted; within 30 'cmp -s /run/wanted /run/got'; right=\$?; ls -l /run; exit \$right"
    [ "$me" = 1 ] || step 60 "$name: what was counted" "$card; ethtool -S \$card | grep -E '$sent' | tee /run/after
        awk 'NR == FNR { old[\$1] = \$2; next } { grew[\$1] = \$2 - old[\$1] }
            END { exit !(grew[\"tx_csum_partial_inner:\"] > 0 && grew[\"tx_tso_inner_packets:\"] > 0 && grew[\"tx_tso_inner_bytes:\"] > 100000) }' /run/before /run/after"
    [ "$me" = 0 ] || step 60 "$name: what was verified" "$card; ethtool -S \$card | grep -E '$came' | tee /run/after
        awk 'NR == FNR { old[\$1] = \$2; next } { grew[\$1] = \$2 - old[\$1] }
            END { exit !(grew[\"rx_csum_unnecessary_inner:\"] > 800 && grew[\"rx_csum_none:\"] == 0) }' /run/before /run/after"
    step 60 "$name: gone" "ip link del $name"
    barrier
}
through standard 42 vxlan id 42 dstport 4789 noudpcsum
through another 43 vxlan id 43 dstport 8472 noudpcsum
through summed 44 vxlan id 44 dstport 4789 udpcsum
# Behind GRE, the driver's rules are those of inner headers, and its hash is of them.
through routed 45 gre local 192.168.1.$mine
through bridged 46 gretap local 192.168.1.$mine key 7
step 60 'unload' 'rmmod mlx5_core'
