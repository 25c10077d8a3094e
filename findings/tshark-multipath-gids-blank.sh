#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The GIDs of an SA MultiPathRecord are listed as those of a PathRecord are, each an IPv6 address with its name.
# Seen:    The rows say "(SGID0)", "(DGID0)" and "(DGID1)" and nothing else; the addresses are there for filters, as JSON and as fields, all under
#          one name, so that a source is told from a destination by its place only. Service ID and QoS class have no field.
# Matters: A text dump does not say between which ports paths were asked for; take -T json and count with sgidcount.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
sa='64 00 ffff 00 000001 00000001  80010000 00000001  01 03 02'
rmpp='01 01 07 00 00000001 00000014 0000000000000000 0007 0000 0000000000000000'
packets ib paths.pcap <<HEX
$sa 81 0000 0000 0000000000000077 0035 0000 00000000 $rmpp 0000000000000000 fe800000000000000002c90300000002 fe800000000000000002c90300000001 0003 0001 00123407 20 ff 8001 1235 84 83 92 01 *276
$sa 14 0000 0000 0000000000000078 003a 0000 00000000 $rmpp 00123407 20 82 8001 1235 84 83 92 11 00 01 02 22222222222222 fe800000000000000002c90300000001 fe800000000000000002c90300000002 fe800000000000000002c90300000003 *276
HEX
user='uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
{
    dissect paths.pcap -o "$user" -V | grep -E '^ +(SA |[^ ].*GID|.*QoS|.*Service ?ID)' | sed 's/^ *//'
    dissect paths.pcap -o "$user" -Y 'infiniband.mad.attributeid == 0x3a' -T fields -e infiniband.multipathrecord.sgidcount -e infiniband.multipathrecord.sdgid
} >"$seen"
check <<'OUT'
SA SubnAdmGetResp(PathRecord)
DGID: fe80::2:c903:0:2
SGID: fe80::2:c903:0:1
SA SubnAdmGetMulti(MultiPathRecord)
..00 0000 = GIDScope: 0x00
SGIDCount: 0x01
DGIDCount: 0x02
(SGID0)
(DGID0)
(DGID1)
0x01	fe80::2:c903:0:1,fe80::2:c903:0:2,fe80::2:c903:0:3
OUT
echo ok
