#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The invariant CRC is checked as the checksums of Ethernet, IPv4 and UDP can be: "[correct]" or "[incorrect]", a status field to filter by,
#          or a preference that turns the check on.
# Seen:    It is a number and nothing else. A packet whose CRC has a flipped bit is dissected without an expert remark; there is one field, no status
#          field, and no preference with a CRC in its name.
# Matters: A clean dissection of RoCE packets says nothing about their ICRC, which a receiver drops silently when it is wrong; check it yourself.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce icrc.pcap <<'HEX'
0c 40 ffff 00 000012 80000007  0000000000001000 00001234 00000010
0c 40 ffff 00 000012 80000007  0000000000001000 00001234 00000010
HEX
python3 - "$tmp/share/icrc.pcap" <<'PY'
import sys

with open(sys.argv[1], "r+b") as capture:
    data = bytearray(capture.read())
    data[-1] ^= 0x80
    capture.seek(0)
    capture.write(data)
PY
{
    dissect icrc.pcap -V | grep -E 'Invariant|CRC|ncorrect' | sed 's/^ *//'
    echo "packets with an expert remark: $(dissect icrc.pcap -Y _ws.expert | wc -l)"
    echo "fields: $(run tshark -G fields 2>"$tmp/tshark.log" | cut -f3 | grep -E '^infiniband\..*crc' | sort | paste -sd ' ')"
    echo "preferences: $(run tshark -G currentprefs 2>"$tmp/tshark.log" | grep -ciE '^#?infiniband.*crc' || true)"
} >"$seen"
check <<'OUT'
Invariant CRC: 0x53bb8c44
Invariant CRC: 0x53bb8cc4
packets with an expert remark: 0
fields: infiniband.invariant.crc infiniband.variant.crc
preferences: 0
OUT
echo ok
