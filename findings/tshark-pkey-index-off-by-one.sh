#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Each row of a P_KeyTable and of a SLtoVLMappingTable is labelled with its own index: P_Key 0xffff is (0), 0x8002 is (2); SL 3 is (3).
# Seen:    The membership bit of an entry is labelled n and the base of the same entry n+1, so that the first base is (1) and the last one of the
#          block (32). The sixteen service levels are labelled 0, 1, 1, 2, 2 up to 8: SL 3 stands as (2), SL 15 as (8).
# Matters: The index of a P_Key, or a lane's service level, has to be counted by hand; the number that tshark prints beside it is another one's.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib tables.pcap <<'HEX'
64 00 ffff 00 000000 00000001  00000000 00000000  01 01 01 81 0000 0000 0000000000000077 0016 0000 00000000 0000000000000000 *84 ffff 7fff 8002 *276
64 00 ffff 00 000000 00000001  00000000 00000000  01 01 01 81 0000 0000 0000000000000077 0017 0000 00010002 0000000000000000 *84 01 23 45 67 89 ab cd ef *276
HEX
dissect tables.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E 'MembershipType: .*\([0-2]\)|P_KeyBase: .*\(([1-3]|32)\)|SL\(x\)toVL' | sed 's/^ *//' >"$seen"
check <<'OUT'
1... .... = MembershipType: 0x1(0)
.111 1111 1111 1111 = P_KeyBase: 0x7fff(1)
0... .... = MembershipType: 0x0(1)
.111 1111 1111 1111 = P_KeyBase: 0x7fff(2)
1... .... = MembershipType: 0x1(2)
.000 0000 0000 0010 = P_KeyBase: 0x0002(3)
.000 0000 0000 0000 = P_KeyBase: 0x0000(32)
0000 .... = SL(x)toVL: 0x0(0)
.... 0001 = SL(x)toVL: 0x1(1)
0010 .... = SL(x)toVL: 0x2(1)
.... 0011 = SL(x)toVL: 0x3(2)
0100 .... = SL(x)toVL: 0x4(2)
.... 0101 = SL(x)toVL: 0x5(3)
0110 .... = SL(x)toVL: 0x6(3)
.... 0111 = SL(x)toVL: 0x7(4)
1000 .... = SL(x)toVL: 0x8(4)
.... 1001 = SL(x)toVL: 0x9(5)
1010 .... = SL(x)toVL: 0xa(5)
.... 1011 = SL(x)toVL: 0xb(6)
1100 .... = SL(x)toVL: 0xc(6)
.... 1101 = SL(x)toVL: 0xd(7)
1110 .... = SL(x)toVL: 0xe(7)
.... 1111 = SL(x)toVL: 0xf(8)
OUT
echo ok
