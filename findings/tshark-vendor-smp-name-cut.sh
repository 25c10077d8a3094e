#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   An SMP with an attribute that Wireshark does not know, as the vendor's 0xff90 (extended port information) that OpenSM and the diagnostics ask adapters and
#          switches for, is summed up with its number: SubnGetResp(0xff90).
# Seen:    The summary line says "SubnGetResp(bManagement Attribute!)", the end of a longer text: the first letters are taken off as the prefix is that known names
#          have. All such attributes look alike there. Of performance management, PortRcvErrorDetails and PortXmitDataSL are "PERF (Unknown Attribute)".
# Matters: Vendors' attributes are told apart by infiniband.mad.attributeid only; it is in the tree and for filters.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
mad="80010000 00000001  01"
{
    for attribute in ff60 ff90 0011; do
        echo "64 00 ffff 00 000000 00000001  $mad 01 01 81 0000 0000 0000000000001234 $attribute 0000 00000000 *276"
    done
    for attribute in 0015 0036 0012; do
        echo "64 00 ffff 00 000001 00000001  $mad 04 01 81 0000 0000 0000000000001234 $attribute 0000 00000000 *276"
    done
} | packets ib vendor.pcap
dissect vendor.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -T fields -e infiniband.mad.attributeid -e _ws.col.info >"$seen"
check <<'OUT'
0xff60	UD Send Only QP=0x000000 SubnGetResp(bManagement Attribute!)
0xff90	UD Send Only QP=0x000000 SubnGetResp(bManagement Attribute!)
0x0011	UD Send Only QP=0x000000 SubnGetResp(NodeInfo)
0x0015	PERF (Unknown Attribute)
0x0036	PERF (Unknown Attribute)
0x0012	PERF (PortCounters)
OUT
echo ok
