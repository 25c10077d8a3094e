#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A Terminate message of iWARP, whose layers, types and codes Wireshark names, shows the headers of the message that it ends as it shows them in
#          that message: the DDP header of 14 bytes if it is tagged and 18 if it is not, then the 28 bytes of a READ request with tags and offsets.
# Seen:    Both headers are strings of bytes, and the first has 14 bytes always. A READ request is untagged, so its message offset counts as the
#          beginning of the RDMAP header, and the last four bytes, the low half of the source's offset, are shown nowhere.
# Matters: Which STag and offset a peer refused, the question that a Terminate answers, has to be read from the bytes, four later than the labels say.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets tcp terminate.pcap <<'HEX'
4d504120494420526571204672616d65 40 01 0000
< 4d504120494420526570204672616d65 40 01 0000
002e 41 41 00000000 00000001 00000001 00000000 1111aaaa 0000000022223333 00000100 4444bbbb 0000000055556666 crc
< 0046 41 47 00000000 00000002 00000001 00000000  0100 e000 002e  41 41 00000000 00000001 00000001 00000000 1111aaaa 0000000022223333 00000100 4444bbbb 0000000055556666 crc
HEX
dissect terminate.pcap -V | grep -E 'OpCode|STag|Tagged Offset:|Layer|Error|Segment Length|Terminated' | sed 's/^ *//' >"$seen"
check <<'OUT'
.... 0001 = OpCode: Read Request (0x1)
Data Sink STag: 0x1111aaaa
Data Sink Tagged Offset: 0x0000000022223333
Data Source STag: 0x4444bbbb
Data Source Tagged Offset: 0x0000000055556666
.... 0111 = OpCode: Terminate (0x7)
0000 .... = Layer: RDMA (0x0)
.... 0001 = Error Types for RDMA layer: Remote Protection Error (0x1)
Error Code for RDMA layer: Invalid STag (0x00)
DDP Segment Length: 002e
Terminated DDP Header: 4141000000000000000100000001
Terminated RDMA Header: 000000001111aaaa0000000022223333000001004444bbbb00000000
OUT
echo ok
