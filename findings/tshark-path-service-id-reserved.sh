#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A PathRecord is shown with the service ID in its first 8 bytes and the QoS class in the 12 bits above the service level, as IBTA's 1.2.1 (2007) has them and
#          Linux's RDMA CM sets them in its queries; a MultiPathRecord with both as well.
# Seen:    Both are reserved, as in the release of 2002: the service ID is "Reserved", in a MultiPathRecord a byte and a run of 7 bytes, and the QoS class (0x123 here) is
#          masked off beside the service level and has no field.
# Matters: Paths that a QoS policy has chosen by service ID or class look alike in a capture: read bytes 0 to 7 and the 16 bits of the service level from the record.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
# ATTRIBUTE COMPONENTS RECORD : a SubnAdmGet of it.
query() { echo "64 00 ffff 00 000001 00000001  80010000 00000001  01 03 02 01 0000 0000 0000000000000077 $1 0000 00000000 *64 0000 0000 $2 $3 *276"; }
gids='fe80000000000000 0002c90300000002 fe80000000000000 0002c90300000001'
{
    # Components: service ID, both GIDs, reversible, number of paths, P_Key, QoS class.
    query 0035 000000000000780d "0000000001061144 $gids 0000 0000 00000000 00 81 ffff 1234 83 00 00 00 0000000000"
    query 003a 0000000000000000 '00000000 00 81 ffff 1234 83 00 00 00 00 01 01 00000001061144 fe80000000000000 0002c90300000001 fe80000000000000 0002c90300000002'
} | packets ib path.pcap
dissect path.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    sed -n '/Attribute (.*PathRecord)/,/^$/p' | grep -E 'Attribute|Reserved|P_Key| SL|DGIDCount' | sed 's/^ *//' >"$seen"
check <<'OUT'
Attribute (PathRecord)
Reserved: 0000000001061144
SLID: 0x0000
P_Key: 0xffff
.... .... .... 0100 = SL: 0x4
Attribute (MultiPathRecord)
P_Key: 0xffff
.... .... .... 0100 = SL: 0x4
Reserved: 00
DGIDCount: 0x01
Reserved: 00000001061144
OUT
echo ok
