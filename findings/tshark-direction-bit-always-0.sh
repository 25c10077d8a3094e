#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The D bit of a directed-route SMP is shown apart from the 15-bit status, 1 for a packet on its way back.
# Seen:    The returning SMP (bytes 4 and 5 are 80 00) shows "D (Direction Bit): 0" and "Status: 0x8000": the bit is looked for at another place
#          than that of the status it stands in, so it reads 0 in both directions.
# Matters: Filters on infiniband.smpdirected.d never match; to tell requests from answers of a subnet manager use the method or the status' top bit.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib smp.pcap <<'HEX'
64 00 ffff 00 000000 00000001  00000000 00000000  01 81 01 01 0000 00 02 0000000000000077 0011 0000 00000000  0000000000000000 ffff ffff *148 00 01 05 *276
64 00 ffff 00 000000 00000001  00000000 00000000  01 81 01 81 8000 01 02 0000000000000077 0011 0000 00000000  0000000000000000 ffff ffff *148 00 01 05 *276
HEX
dissect smp.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V | sed -n '/^ *SMP/,/Hop Count/p' | sed 's/^ *//' >"$seen"
check <<'OUT'
SMP (Directed Route) SubnGet(NodeInfo)
.... .... .... .... .... .... .... .... .... .... .... .... 0... .... .... .... = D (Direction Bit): 0x0
Status: 0x0000
Hop Pointer: 0x00
Hop Count: 0x02
SMP (Directed Route) SubnGetResp(NodeInfo)
.... .... .... .... .... .... .... .... .... .... .... .... 0... .... .... .... = D (Direction Bit): 0x0
Status: 0x8000
Hop Pointer: 0x01
Hop Count: 0x02
OUT
echo ok
