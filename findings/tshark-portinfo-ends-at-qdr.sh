#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   PortInfo of an EDR port (extended link speeds, widths 1x, 2x, 4x supported) shows 25.78125 Gb/s as the active speed.
# Seen:    Only the four-bit fields up to QDR are known: "10.0 Gbps". The extended speeds in bytes 62 and 63 and bit 14 of the capability mask
#          (extended speeds supported) have no field, and the width mask 0x13 with 2x in it is a "Reserved LinkWidthSupported Value".
# Matters: Link speed and width in captures of current hardware must be read with infiniband-diags or from the bytes.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib portinfo.pcap <<'HEX'
64 00 ffff 00 000000 00000001  00000000 00000000  01 01 01 81 0000 0000 0000000000001234 0015 0000 00000001 *84 *84 0000000000000000 fe80000000000000 0005 0001 02514868 0000 0000 01 02 13 02 74 52 00 47 50 40 *146 22 07 *276
HEX
dissect portinfo.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E 'LinkSpeed|LinkWidth|CapabilityMask:|1\.\. \.\.\.\. \.\.\.\. \.\.\.\. =|PortState|Extended S' | sed 's/^ *//' >"$seen"
check <<'OUT'
CapabilityMask: 0x02514868
.... 0... .... .... .... .... .... .... = LinkSpeedWIdthPairsTableSupported: 0x0
LinkWidthEnabled: 0x02, 4x
LinkWidthSupported: 0x13, Reserved LinkWidthSupported Value! Possible Error
LinkWidthActive: 0x02, 4x
0111 .... = LinkSpeedSupported: 0x7, 2.5 or 5.0 or 10.0 Gbps
.... 0100 = PortState: 0x4, Active
0100 .... = LinkSpeedActive: 0x4, 10.0 Gbps
.... 0111 = LinkSpeedEnabled: 0x7, 2.5 or 5.0 or 10.0 Gbps
OUT
echo ok
