#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A flow-control packet of InfiniBand's link layer, six bytes with their CRC, is shown with its virtual lane, the blocks sent and the credit
#          limit: Wireshark has a dissector and fields for it, and ERF a record type.
# Seen:    The name of its operation stands in the summary line, and then "[Malformed Packet]" with none of its fields. The destination column has a LID
#          that is made of the packet's bytes: 1110 is the word 0x0456, lane 0 and credit limit 0x456.
# Matters: Credits of a link, the first thing to look at when it stalls, cannot be read off with tshark; read the two words of the packet.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets link credits.erf <<'HEX'
0123 0456 0000      # normal, 0x123 blocks sent, lane 0, credit limit 0x456
1123 3456 0000      # initial, lane 3
HEX
dissect credits.erf -T fields -E header=y -e _ws.col.def_dst -e _ws.col.Info -e infiniband_link.fctbs -e infiniband_link.vl -e infiniband_link.fccl >"$seen"
dissect credits.erf -V | grep -E 'Record type|InfiniBand Link|Wire length' | sed 's/^ *//' >>"$seen"
check <<'OUT'
_ws.col.def_dst	_ws.col.info	infiniband_link.fctbs	infiniband_link.vl	infiniband_link.fccl
LID: 1110	 Normal Flow Control[Malformed Packet]			
LID: 13398	 Flow Control Init[Malformed Packet]			
Record type: 0x19 (Type 25: INFINIBAND_LINK)
Wire length: 6
[Malformed Packet: InfiniBand Link]
Record type: 0x19 (Type 25: INFINIBAND_LINK)
Wire length: 6
[Malformed Packet: InfiniBand Link]
OUT
echo ok
