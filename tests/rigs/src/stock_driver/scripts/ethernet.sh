# The network device of the card, between two machines with nothing else between them.
mine=$((me + 1))
other=$((peer + 1))

up='card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && ip address add fd00::'$mine'/64 dev $card nodad'
step 60 'load' 'modprobe mlx5_core && netdev mlx5_core'
step 60 'up' "$up; ip address"
for query in i k S c g l a T; do
    step 60 "ethtool -$query" "ethtool -$query \$(netdev mlx5_core)"
done
barrier
step 60 'IPv4' "ping -c 3 -i 0.2 -w 30 192.168.1.$other"
step 60 'IPv6' "ping -c 3 -i 0.2 -w 30 fd00::$other"
step 60 'all sizes' "for size in 0 1 17 18 19 100 1471 1472 1473 4000 20000 65507; do
    ping -q -c 1 -w 30 -s \$size 192.168.1.$other || exit; done"
barrier
step 60 'VLAN' 'modprobe 8021q && card=$(netdev mlx5_core) && ip link add link $card name lane type vlan id 5 &&
    ip link set lane up && ip address add 192.168.5.'$mine'/24 dev lane && ip -d link show lane'
barrier
step 60 'IPv4 in a VLAN' "ping -c 3 -i 0.2 -w 30 192.168.5.$other"
barrier
step 60 'VLAN without offload' "ethtool -K \$(netdev mlx5_core) rxvlan off txvlan off && ping -c 3 -i 0.2 -w 30 192.168.5.$other"
barrier
step 60 'VLAN with offload' "ethtool -K \$(netdev mlx5_core) rxvlan on txvlan on && ping -c 3 -i 0.2 -w 30 192.168.5.$other"
barrier

# What only the senders check.
step 60 'file' 'seq 1 400000 > /run/file && sha256sum /run/file'
client_server 60 'file there' 'listening 5001' 'nc -l -p 5001 -e sh -c "cat > /run/got" && cmp /run/got /run/file && sha256sum /run/got' \
    'nc 192.168.1.1 5001 < /run/file'
client_server 60 'file back' 'listening 5001' 'nc -l -p 5001 -e cat /run/file' \
    'nc 192.168.1.1 5001 < /dev/null > /run/got && cmp /run/got /run/file && sha256sum /run/got'
for options in '-n 8M' '-n 8M -R' '-6 -n 4M' '-u -b 10M -n 1M' '-u -b 10M -n 1M -R' '-P 4 -n 4M --bidir'; do
    case $options in
    -6*) address=fd00::1 ;;
    *) address=192.168.1.1 ;;
    esac
    client_server 90 "iperf3 $options" 'listening 5201' 'iperf3 -s -1' "iperf3 -c $address $options"
done
step 60 'checksums' 'cat /proc/net/snmp /proc/net/snmp6; nstat -asz "*CsumErrors" &&
    nstat -asz "*CsumErrors" | awk "NR > 1 && \$2 != 0 { bad = 1 } END { exit bad }"'

# What the card did of it: cut large sends into packets, and put tags in and out.
for counter in tx_tso_packets tx_tso_bytes tx_added_vlan_packets rx_removed_vlan_packets; do
    step 30 "$counter" "ethtool -S \$(netdev mlx5_core) | grep x_ | grep -e tso -e vlan; counted $counter"
done

# Striding receive queues, and several packets in one send request. The two cards that do not have them here refuse.
old='card=$(netdev mlx5_core); case $(cat /sys/class/net/$card/device/device) in 0x1013 | 0x1015) true ;; *) false ;; esac'
for flag in rx_striding_rq skb_tx_mpwqe xdp_tx_mpwqe; do
    step 60 "$flag off and on" "ethtool --set-priv-flags \$(netdev mlx5_core) $flag off
        if ethtool --set-priv-flags \$(netdev mlx5_core) $flag on; then ! { $old; }; else $old; fi &&
            ethtool --show-priv-flags \$(netdev mlx5_core)"
done
barrier
step 60 'ping by multi-packet sends' "ping -c 20 -i 0.1 -w 30 192.168.1.$other"
for counter in tx_mpwqe_blks tx_mpwqe_pkts; do
    step 30 "$counter" "ethtool -S \$(netdev mlx5_core) | grep mpwqe; { $old; } || counted $counter"
done
client_server 90 'iperf3 into strides' 'listening 5201' 'iperf3 -s -1' 'iperf3 -c 192.168.1.1 -n 8M --bidir'

# A virtual function cannot raise the MTU of the port, which here is 4200 bytes.
jumbo='card=$(netdev mlx5_core); mtu=9000; [ $(cat /sys/class/net/$card/device/device) != 0x101e ] || mtu=4200'
step 60 'jumbo frames' "$jumbo; ip link set \$card mtu \$mtu && ip link show \$card | grep \"mtu \$mtu\""
barrier
step 60 'large ping' "$jumbo; ping -c 2 -i 0.2 -w 30 -M do -s \$((mtu - 28)) 192.168.1.$other"
client_server 90 'iperf3 with jumbo frames' 'listening 5201' 'iperf3 -s -1' 'iperf3 -c 192.168.1.1 -n 8M'
# Frames of several strides do not always end where a request does.
step 60 'unused strides' "$old || { ethtool -S \$card | grep filler; [ $me = 1 ] || counted rx_mpwqe_filler_cqes; }"
step 60 'small frames' 'card=$(netdev mlx5_core) && ip link set $card mtu 1500'
barrier
step 60 'ping again' "ping -c 2 -i 0.2 -w 30 192.168.1.$other"
barrier

host link "$me" down
step 60 'cable out' 'card=$(netdev mlx5_core); until_true "grep -q 0 /sys/class/net/$card/carrier"; ip link show $card'
barrier
host link "$me" up
step 60 'cable in' 'card=$(netdev mlx5_core); until_true "grep -q 1 /sys/class/net/$card/carrier"; ip link show $card'
barrier
step 60 'ping over it' "ping -c 2 -i 0.2 -w 30 192.168.1.$other"
barrier

# Nothing is sent any more, and so the two ends have to agree.
step 60 'quiet' 'ip link del lane; card=$(netdev mlx5_core); ip address flush dev $card;
    echo 1 > /proc/sys/net/ipv6/conf/$card/disable_ipv6'
barrier
for counter in packets_phy bytes_phy vport_unicast_packets vport_unicast_bytes; do
    exchange $counter "ethtool -S \$(netdev mlx5_core) | awk '\$1 == \"tx_$counter:\" { print \$2 }'"
    step 30 "rx_$counter" "[ -n '$answer' ] && within 10 'ethtool -S \$(netdev mlx5_core) | grep -q \"rx_$counter: $answer\$\"' ||
        { echo \"sent $answer, got:\" && ethtool -S \$(netdev mlx5_core) | grep x_$counter; exit 1; }"
done
step 60 'statistics' 'ip -s link show $(netdev mlx5_core)'

step 60 'unload' 'rmmod mlx5_core'
step 60 'load again' 'modprobe mlx5_core'
step 60 'up again' "$up"
barrier
step 60 'ping after it' "ping -c 2 -i 0.2 -w 30 192.168.1.$other"
barrier
step 60 'unload again' 'rmmod mlx5_core'
