# mlx5_ib's optional counters, which are rules in the flow tables of RDMA's packets, against what perftest has sent.
roce_up ib_uverbs
step 30 'supported' 'rdma statistic mode supported link mlx5_0/1 | tee /run/supported; for name in rx_ce rx_cnp tx_cnp; do
    grep -q "cc_${name}_pkts" /run/supported || exit; done'

# is COUNTER WANTED: what the card has counted.
is='is() { rdma statistic show link mlx5_0/1 | tee /run/counters; grep -qw "$1 $2" /run/counters; }'
# datagrams COUNT OPTIONS: machine 1 sends so many of 1000 bytes to machine 0, each in one packet.
datagrams() {
    client_server 90 "$1 datagrams $2" 'listening 18515' "ib_send_bw -F -c UD -s 1000 -n $1 $2" \
        "ib_send_bw -F -c UD -s 1000 -n $1 $2 192.168.1.1"
    barrier
}

[ "$me" = 1 ] || step 30 'count marked' "$is; rdma statistic set link mlx5_0/1 optional-counters cc_rx_ce_pkts,cc_rx_cnp_pkts &&
    is cc_rx_ce_pkts 0"
[ "$me" = 0 ] || step 30 'count answers' "$is; rdma statistic set link mlx5_0/1 optional-counters cc_tx_cnp_pkts && is cc_tx_cnp_pkts 0"
barrier
# Not marked, capable of it, and marked by a switch that is congested (RFC 3168).
datagrams 30 '--tclass=0'
datagrams 40 '--tclass=2'
[ "$me" = 1 ] || step 30 'none is marked' "$is; is cc_rx_ce_pkts 0"
barrier
datagrams 50 '--tclass=3'
[ "$me" = 1 ] || step 30 'all are marked' "$is; is cc_rx_ce_pkts 50 && is cc_rx_cnp_pkts 0"
[ "$me" = 0 ] || step 30 'no answers' "$is; is cc_tx_cnp_pkts 0"
step 30 'count no more' 'rdma statistic unset link mlx5_0/1 optional-counters && ! rdma statistic show link mlx5_0/1 | grep cc_'
barrier
datagrams 20 '--tclass=3'

# Newer kernels count all packets, and their bytes with all headers but the frame's checksum: 14 of Ethernet, 20 of IP, 8 of
# UDP, 12 of the base transport, 8 of the datagram, and the ICRC's 4.
if rdma statistic mode supported link mlx5_0/1 | grep -q rdma_rx_packets; then
    step 30 'count all' 'rdma statistic set link mlx5_0/1 optional-counters rdma_rx_packets,rdma_rx_bytes,rdma_tx_packets,rdma_tx_bytes'
    barrier
    datagrams 60 ''
    [ "$me" = 1 ] || step 30 'all that came' "$is; is rdma_rx_packets 60 && is rdma_rx_bytes 63960 && is rdma_tx_packets 0"
    [ "$me" = 0 ] || step 30 'all that went' "$is; is rdma_tx_packets 60 && is rdma_tx_bytes 63960 && is rdma_rx_packets 0"
    barrier
fi
step 60 'unload' 'rmmod mlx5_ib && rmmod mlx5_core'
