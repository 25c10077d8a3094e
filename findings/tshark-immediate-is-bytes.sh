#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Immediate data, an invalidated R_Key and a Q_Key are numbers of 32 bits, as the R_Key of the RETH is: filters take 0x0badcafe, and a Q_Key
#          is printed with eight digits.
# Seen:    Immediate data and the IETH's R_Key are strings of bytes, so that a filter with a number is refused ("too large for a byte value") and
#          only 0b:ad:ca:fe matches; both are also there twice. The Q_Key has sixteen digits, the P_Key is decimal.
# Matters: Filters that compare an R_Key of a RETH with the one of an IETH need two notations; scripts have to drop the second copy.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce keys.pcap <<'HEX'
05 40 ffff 00 000012 80000007  0badcafe 00112233445566778899aabbccddeeff00112233
17 40 ffff 00 000012 80000008  00005678 00112233445566778899aabbccddeeff00112233
64 40 8002 00 000012 00000009  80010000 00000013 00112233445566778899aabbccddeeff00112233
HEX
{
    for filter in 'infiniband.immdt == 0x0badcafe' 'infiniband.immdt == 0b:ad:ca:fe' 'infiniband.ieth == 0x5678' 'infiniband.ieth == 00:00:56:78'; do
        echo "$filter: $(run tshark -r /tmp/keys.pcap -T fields -e frame.number -Y "$filter" 2>"$tmp/tshark.log" || grep -o 'tshark: .*' "$tmp/tshark.log")"
    done
    dissect keys.pcap -T fields -E separator=' ' -E header=y -e infiniband.immdt -e infiniband.ieth -e infiniband.deth.q_key -e infiniband.bth.p_key
} >"$seen"
check <<'OUT'
infiniband.immdt == 0x0badcafe: tshark: 0x0badcafe is too large for a byte value
infiniband.immdt == 0b:ad:ca:fe: 1
infiniband.ieth == 0x5678: tshark: 0x5678 is too large for a byte value
infiniband.ieth == 00:00:56:78: 2
infiniband.immdt infiniband.ieth infiniband.deth.q_key infiniband.bth.p_key
0badcafe,0badcafe   65535
 00005678,00005678  65535
  0x0000000080010000 32770
OUT
echo ok
