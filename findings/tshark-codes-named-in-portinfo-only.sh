#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A dissector that shows the MTU code of PortInfo as "0x5, 4096" and its state as "Active" has words for the same codes elsewhere: MTU, rate and
#          packet life time of a PathRecord or MCMemberRecord, the node type of NodeInfo, the state of SMInfo, trap type and producer of InformInfo.
# Seen:    Of these PortInfo alone has words. Node type 2 (a switch), SM state 3 (master), MTU 0x04 (2048), rate 0x11 (200 Gb/s), selector 2 (exactly),
#          join state 0x7 and producer 4 (class manager) are bare numbers; the name of a ServiceRecord, which is text, is a string of bytes.
# Matters: Codes of path records in a capture are looked up by hand: they are those of ibv_rate and ibv_mtu.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
smp='64 00 ffff 00 000000 00000001 00000000 00000000  01 01 01 81 0000 0000 0000000000001234'
sa='64 00 ffff 00 000001 00000001 80010000 00000001  01 03 02 81 0000 0000 0000000000001234'
packets ib codes.pcap <<HEX
$smp 0015 0000 00000001 *84 *84 0000000000000000 fe80000000000000 0005 0001 02514868 0000 0000 01 02 03 02 14 52 00 47 50 40 00 08 08 05 *276
$smp 0011 0000 00000000 *84 *84 01 01 02 24 0200000000000001 0200000000000001 0200000000000001 0080 1021 00000000 01 0002c9 *276
$smp 0020 0000 00000000 *84 *84 0200000000000001 0000000000000000 00000007 53 *276
$sa 0035 0000 00000000 *48 *56 *76 0000000000000000 fe800000000000000200000000000002 fe800000000000000200000000000001 0002 0001 00000000 00 80 ffff 0003 84 91 92 *276
$sa 0038 0000 00000000 *48 *56 *76 ff12401bffff000000000000ffffffff fe800000000000000200000000000001 00000b1b c000 84 00 ffff 91 92 10000000 27 80 *276
$sa 0003 0000 00000000 *48 *56 *76 *92 ffff 0000 0000 01 01 0003 0043 000001 12 00 000004 *276
$sa 0031 0000 00000000 *48 *56 *76 1000000000000001 fe800000000000000200000000000001 ffff 0000 00000e10 *124 6e66732d72646d61 *276
HEX
dissect codes.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E '^ +Attribute \(|PortState:|NeighborMTU|NodeType|VendorID|SMState|MTU|Rate|PacketLife|JoinState|Type: 0x000|ServiceName' |
    sed -E 's/^ *//; s/(ServiceName: \w{16}).*/\1.../' | uniq >"$seen"
check <<'OUT'
Attribute (PortInfo)
.... 0100 = PortState: 0x4, Active
0101 .... = NeighborMTU: 0x5, 4096
.... 0101 = MTUCap: 0x5, 4096
Attribute (NodeInfo)
NodeType: 0x02
VendorID: 0x0002c9
Attribute (SMInfo)
.... 0011 = SMState: 0x3
Attribute (PathRecord)
10.. .... = MTUSelector: 0x2
..00 0100 = MTU: 0x04
10.. .... = RateSelector: 0x2
..01 0001 = Rate: 0x11
10.. .... = PacketLifeTimeSelector: 0x2
..01 0010 = PacketLifeTime: 0x12
Attribute (MCMemberRecord)
10.. .... = MTUSelector: 0x2
..00 0100 = MTU: 0x04
10.. .... = RateSelector: 0x2
..01 0001 = Rate: 0x11
10.. .... = PacketLifeTimeSelector: 0x2
..01 0010 = PacketLifeTime: 0x12
.... 0111 = JoinState: 0x7
Attribute (InformInfo)
Type: 0x0003
ProducerTypeVendorID: 0x000004
Attribute (ServiceRecord)
ServiceName: 6e66732d72646d61...
OUT
echo ok
