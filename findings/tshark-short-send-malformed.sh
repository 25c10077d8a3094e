#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A SEND of a few bytes of text on an RC queue pair is data to Wireshark: no heuristic dissector takes a payload shorter than its header.
# Seen:    RPC-over-RDMA takes every SEND shorter than 16 bytes, and the packet is "[Malformed Packet]" without data and invariant CRC; from 16 bytes
#          on it is data. --disable-protocol rpcordma gives the data back.
# Matters: A "Malformed Packet" of tshark on short SENDs is no fault of the sender; checks of captures should disable rpcordma.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce send.pcap <<'HEX'
04 00 ffff 00 000011 00000100  68656c6c
04 00 ffff 00 000011 00000101  68656c6c 6f2c2077 6f726c64
04 00 ffff 00 000011 00000102  68656c6c 6f2c2077 6f726c64 2e2e2e2e
HEX
{
    dissect send.pcap -T fields -E header=y -e infiniband.bth.psn -e _ws.col.Info -e data.len -e infiniband.invariant.crc
    echo 'with --disable-protocol rpcordma:'
    dissect send.pcap --disable-protocol rpcordma -T fields -e infiniband.bth.psn -e _ws.col.Info -e data.len -e infiniband.invariant.crc
} >"$seen"
check <<'OUT'
infiniband.bth.psn	_ws.col.info	data.len	infiniband.invariant.crc
256	RC Send Only QP=0x000011 [Malformed Packet]		
257	RC Send Only QP=0x000011 [Malformed Packet]		
258	RC Send Only QP=0x000011 	16	0x4f413700
with --disable-protocol rpcordma:
256	RC Send Only QP=0x000011 	4	0x1a94c325
257	RC Send Only QP=0x000011 	12	0xb2f1c2ab
258	RC Send Only QP=0x000011 	16	0x4f413700
OUT
echo ok
