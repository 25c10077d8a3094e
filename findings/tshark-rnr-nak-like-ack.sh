#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The summary line tells the three kinds of acknowledgement apart: an ACK, an RNR NAK with its timer, a NAK with its error.
# Seen:    It names the errors of NAKs only. An RNR NAK, by which the receiver says that it has no buffer, has the line of an ACK, as has a syndrome with the reserved kind; no
#          expert information marks either. The tree has the kind and the timer.
# Matters: Receivers without buffers are found by infiniband.aeth.syndrome.opcode == 1, not in the list of packets.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
for syndrome in 1f 2c 40 60 63; do
    echo "11 00 ffff 00 000066 00000100  ${syndrome}000001"
done | packets roce kinds.pcap
{
    dissect kinds.pcap -T fields -E header=y -e infiniband.aeth.syndrome.opcode -e infiniband.aeth.syndrome.timer -e _ws.col.info -e _ws.expert.message | sed 's/[ \t]*$//'
    echo "packets with the filter for RNR NAKs: $(dissect kinds.pcap -Y 'infiniband.aeth.syndrome.opcode == 1' -T fields -e frame.number)"
} >"$seen"
check <<'OUT'
infiniband.aeth.syndrome.opcode	infiniband.aeth.syndrome.timer	_ws.col.info	_ws.expert.message
0		RC Acknowledge QP=0x000066
1	12	RC Acknowledge QP=0x000066
2		RC Acknowledge QP=0x000066
3		RC Acknowledge QP=0x000066 [PSN Sequence Error]
3		RC Acknowledge QP=0x000066 [Remote Operational Error]
packets with the filter for RNR NAKs: 2
OUT
echo ok
