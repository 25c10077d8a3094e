#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A SEND of zero bytes from an empty buffer is data of their number to Wireshark, as an RDMA WRITE of them is, and as a SEND of other bytes is.
# Seen:    A single-packet RC SEND of 32 zeros or more has no data: neither a field nor a length nor another protocol, and no expert remark, as if the
#          payload were not there. 28 zeros are data, 20 are a message of SMB Direct, without a connection of it. WRITEs, READ responses, UD packets
#          and the middle of a SEND are data. With --disable-protocol rpcordma the SEND is data again.
# Matters: Sums of data.len over a capture, and checks that each SEND has a payload, are wrong for buffers that begin with zeros; disable rpcordma and
#          smb_direct in them.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce zeros.pcap <<'HEX'
04 00 ffff 00 000011 00000100  *76                                  # RC SEND Only of 64 zeros
04 00 ffff 00 000011 00000101  01 *76                               # the same with another first byte
04 00 ffff 00 000011 00000102  *44
04 00 ffff 00 000011 00000103  *40
04 00 ffff 00 000011 00000104  *32
01 00 ffff 00 000011 00000105  *76                                  # SEND Middle
0a 00 ffff 00 000011 00000106  0000000000001000 0000abcd 00000040 *92
10 00 ffff 00 000011 00000107  1f000001 *80
64 00 ffff 00 000011 00000108  00001234 00000055 *84
HEX
fields=(-T fields -e infiniband.bth.psn -e infiniband.bth.opcode -e frame.protocols -e data.len -e _ws.expert.message)
{
    dissect zeros.pcap "${fields[@]}" | cut -d: -f1,5-
    echo "without rpcordma and smb_direct:"
    dissect zeros.pcap --disable-protocol rpcordma --disable-protocol smb_direct "${fields[@]}" | cut -d: -f1,5- | grep -vE '^25[79]|^26[1-4]'
} | sed 's/eth:infiniband/infiniband/; s/\t*$//' >"$seen"
check <<'OUT'
256	4	infiniband
257	4	infiniband:data	64
258	4	infiniband
259	4	infiniband:data	28
260	4	infiniband:smb_direct
261	1	infiniband:data	64
262	10	infiniband:data	64
263	16	infiniband:data	64
264	100	infiniband:data	64
without rpcordma and smb_direct:
256	4	infiniband:data	64
258	4	infiniband:data	32
260	4	infiniband:data	20
OUT
echo ok
