#!/usr/bin/env bash
# Package: pciutils 3.9.0 (Debian 12).
# Guess:   An lspci that decodes 64 GT/s knows it in all registers of the link: LnkCap, LnkSta and the vector of LnkCap2.
# Seen:    For a device with six speeds LnkCap and LnkSta say 64GT/s while LnkCap2 says "Supported Link Speeds: RsvdP": the vector of
#          a ConnectX-8 or BlueField in a PCIe 6 slot looks invalid. Five speeds are shown as "2.5-32GT/s".
# Matters: Our reading of the link (speed from LnkSta, not from LnkCap2) is the one that works with every version of the tool beside it.
source "$(dirname "$0")/lib.sh"
debs bookworm pciutils=1:3.9.0-4
mkdir -p "$tmp/share"
python3 - >"$tmp/share/devices" <<'PY'
import struct

for slot, speed in ((1, 5), (2, 6)):
    space = bytearray(256)
    struct.pack_into("<HHHHB3B", space, 0, 0x15B3, 0x1023, 6, 0x10, 0, 0, 0x07, 0x02)
    space[0x34] = 0x60
    struct.pack_into("<BBH", space, 0x60, 0x10, 0, 2)
    struct.pack_into("<I", space, 0x6C, speed | 16 << 4)
    struct.pack_into("<H", space, 0x72, speed | 16 << 4)
    struct.pack_into("<I", space, 0x8C, ((1 << speed) - 1) << 1)
    print(f"{slot:02x}:00.0 Infiniband controller")
    for row in range(0, 256, 16):
        print(f"{row:02x}: {space[row:row + 16].hex(' ')}")
    print()
PY
run lspci -F /tmp/devices -vv 2>/dev/null | grep -E '^0|LnkCap|LnkSta:' | sed -E 's/^\s*//; s/, (ASPM|Crosslink).*//' >"$seen"
check <<'OUT'
01:00.0 Infiniband controller: Mellanox Technologies CX8 Family [ConnectX-8]
LnkCap:	Port #0, Speed 32GT/s, Width x16
LnkSta:	Speed 32GT/s, Width x16
LnkCap2: Supported Link Speeds: 2.5-32GT/s
02:00.0 Infiniband controller: Mellanox Technologies CX8 Family [ConnectX-8]
LnkCap:	Port #0, Speed 64GT/s, Width x16
LnkSta:	Speed 64GT/s, Width x16
LnkCap2: Supported Link Speeds: RsvdP
OUT
echo ok
