#!/usr/bin/env bash
# Package: libibmad5 56.1 (Debian 13).
# Guess:   XDR is the next bit (16) of PortInfo's LinkSpeedExtActive after FDR 1, EDR 2, HDR 4 and NDR 8.
# Seen:    libibmad calls 16 undefined. XDR is value 1 of a field of its own, LinkSpeedExtActive2, in byte 56 of PortInfo (LinkSpeedExtActive is in
#          byte 62), which it shares with LinkSpeedExtSupported2 and LinkSpeedExtEnabled2.
# Matters: A driver that reports an XDR port from an InfiniBand PortInfo must read two fields; the first says "No Extended Speed" or a lower one.
source "$(dirname "$0")/lib.sh"
debs trixie libibmad5=56.1-1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/speeds.py" <<'PY'
import ctypes

mad = ctypes.CDLL("libibmad.so.5")
mad.mad_field_name.restype = ctypes.c_char_p


def dump(name, value):
    text = ctypes.create_string_buffer(200)
    getattr(mad, "mad_dump_" + name)(text, 200, (ctypes.c_uint32 * 4)(value), 4)
    return text.value.decode()


for value in (8, 16):
    print("linkspeedext", value, dump("linkspeedext", value))
for value in (0, 1, 2):
    print("linkspeedext2", value, dump("linkspeedext2", value))
for field in (324, 666, 667, 668):
    portinfo = (ctypes.c_uint8 * 64)()
    mad.mad_set_field(portinfo, 0, field, 1)
    byte = next(i for i in range(64) if portinfo[i])
    print(f"{mad.mad_field_name(field).decode()}: value 1 is 0x{portinfo[byte]:02x} of PortInfo's byte {byte}")
PY
run python3 /tmp/speeds.py >"$seen"
check <<'OUT'
linkspeedext 8 106.25 Gbps
linkspeedext 16 undefined (16)
linkspeedext2 0 No Extended Speed 2
linkspeedext2 1 212.5 Gbps
linkspeedext2 2 undefined (2)
LinkSpeedExtActive: value 1 is 0x10 of PortInfo's byte 62
LinkSpeedExtActive2: value 1 is 0x20 of PortInfo's byte 56
LinkSpeedExtSupported2: value 1 is 0x08 of PortInfo's byte 56
LinkSpeedExtEnabled2: value 1 is 0x01 of PortInfo's byte 56
OUT
echo ok
