#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The payload of an RC SEND or RDMA WRITE is data to Wireshark, whatever its first bytes are; only a UD SEND on an InfiniBand link may be IPoIB.
# Seen:    On every service and opcode, RoCE included, a payload that begins with an EtherType and two zeros is shown as that protocol: a SEND
#          becomes ARP, a WRITE an ICMP request, a READ response IPv6, and the protocol column says nothing of RoCE.
# Matters: Addresses and packets of no host appear in the statistics of a capture; filters select by infiniband.bth, not by the protocol column.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce payload.pcap <<'HEX'
04 00 ffff 00 000011 00000100  08060000 00010800 06040001 020000000001 0a000001 000000000000 0a000002 *64
0a 00 ffff 00 000011 00000101  0000000010000000 00001234 00000040 08000000 45000054 00010000 40010000 0a000003 0a000004 08000000 *92
10 00 ffff 00 000011 00000102  00000001 86dd0000 60000000 00003b40 *76
04 00 ffff 00 000011 00000103  08060001 00010800 06040001 020000000001 0a000001 000000000000 0a000002 *64
HEX
dissect payload.pcap -T fields -E header=y -e infiniband.bth.psn -e _ws.col.Protocol -e _ws.col.Info -e ip.src -e data.len >"$seen"
check <<'OUT'
infiniband.bth.psn	_ws.col.protocol	_ws.col.info	ip.src	data.len
256	ARP	Who has 10.0.0.2? Tell 10.0.0.1	10.0.0.1	
257	ICMP	Echo (ping) request  id=0x0000, seq=0/0, ttl=64	10.0.0.1,10.0.0.3	16
258	IPv6	IPv6 no next header	10.0.0.1	
259	RRoCE	RC Send Only QP=0x000011 	10.0.0.1	52
OUT
echo ok
