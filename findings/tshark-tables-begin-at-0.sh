#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The tables of a switch come in blocks that the attribute modifier numbers, so Wireshark gives the LID with each port of a forwarding table, the
#          multicast LID and the ports with each mask, and the two ports of a table of service levels.
# Seen:    Each block is numbered from 0. The port to LID 65 is in row 1 of block 1, and so is that to LID 1 in block 0. A mask of 0x0006 at position 1
#          means ports 17 and 18, but nothing beside it tells them from ports 1 and 2, and row 0 of block 2 not from multicast LID 0xc000. The attribute
#          modifier is one number, also where it holds two ports.
# Matters: Read row by row, all tables of a capture are those of the first block; add 64 for each block of LIDs, 32 of groups, 16 ports for each position.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
# ATTRIBUTE MODIFIER DATA : a SubnGetResp of it.
answer() { echo "64 00 ffff 00 000000 00000001  00000000 00000000  01 01 01 81 0000 0000 0000000000000077 $1 0000 $2 0000000000000000 *84 $3 *276"; }
{
    answer 0019 00000001 '01 02 03'
    answer 001b 10000002 '0006 8000'
    answer 0017 00000102 '01 23 45 67 01 23 45 67'
} | packets ib tables.pcap
dissect tables.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E '^ *SMP|Attribute Modifier|Port: .*\([0-2]\)|PortMask: .*\([01]\)|LID|Block|Position|InputPort|OutputPort' |
    grep -v 'Local Route' | sed 's/^ *//' >"$seen"
check <<'OUT'
Attribute Modifier: 0x00000001
SMP (LID Routed) SubnGetResp(LinearForwardingTable)
Port: 0x01(0)
Port: 0x02(1)
Port: 0x03(2)
Attribute Modifier: 0x10000002
SMP (LID Routed) SubnGetResp(MulticastForwardingTable)
PortMask: 0x0006(0)
PortMask: 0x8000(1)
Attribute Modifier: 0x00000102
SMP (LID Routed) SubnGetResp(SLtoVLMappingTable)
OUT
echo ok
