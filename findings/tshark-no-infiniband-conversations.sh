#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which counts conversations and endpoints for Fibre Channel, Token Ring and Bluetooth, has both tables for InfiniBand as well, with
#          LIDs or GIDs and queue pairs.
# Seen:    No statistic of tshark has anything of InfiniBand. For RoCEv2 there is the table of UDP, whose rows are made of the source ports: both directions
#          of one connection between two queue pairs are two conversations, each with packets one way only.
# Matters: Packets per connection are to be counted by infiniband.bth.destqp and the IP addresses, not with conversations.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
# frame SOURCE SINK PORT BYTES : RoCEv2 of 28 bytes with the ICRC over IPv4 in Ethernet; checksums are 0.
frame() { echo "020000000002 020000000001 0800 45000038000040004011 0000 0a0000$1 0a0000$2 $3 12b7 0024 0000 $4 *70"; }
packets ether pair.pcap <<HEX
$(frame 01 02 c001 '0420ffff 00000066 80000100 0102030405060708')
$(frame 02 01 d002 '1140ffff 00000055 00000100 1f000001')
$(frame 01 02 c001 '0420ffff 00000066 80000101 0102030405060708')
$(frame 02 01 d002 '1140ffff 00000055 00000101 1f000002')
HEX
{
    dissect pair.pcap --disable-protocol rpcordma -T fields -e _ws.col.Info | sed 's/ *$//' | sort | uniq -c | sed 's/^ *//'
    run tshark -r /tmp/pair.pcap -q -z conv,infiniband >"$tmp/tables" 2>&1 || true
    grep -oE 'Invalid -z argument "[^"]*"|^ *conv,(bluetooth|fc|tr)$' "$tmp/tables"
    echo "statistics with InfiniBand, RDMA or RoCE in the name: $(sed 1,2d "$tmp/tables" | grep -ciE 'infiniband|rdma|roce')"
    dissect pair.pcap -q -z conv,udp | grep '<->' | awk '{print $1, $2, $3, "frames", $4, "and", $7}' | sort
} >"$seen"
check <<'OUT'
2 RC Acknowledge QP=0x000055
2 RC Send Only QP=0x000066
Invalid -z argument "conv,infiniband"
     conv,bluetooth
     conv,fc
     conv,tr
statistics with InfiniBand, RDMA or RoCE in the name: 0
10.0.0.1:49153 <-> 10.0.0.2:4791 frames 0 and 2
10.0.0.2:53250 <-> 10.0.0.1:4791 frames 0 and 2
OUT
echo ok
