#!/usr/bin/env bash
# Package: libibumad3 56.1 (Debian 13).
# Guess:   umad_attribute_str names the attributes of each management class that umad_class_str names: PortCounters (0x12) and PortCountersExtended
#          (0x1d) of performance management, CongestionInfo (0x11) of congestion control, IOUnitInfo (0x10) of device management.
# Seen:    It has the attributes of subnet management, the SA and the CM only. Of the classes "Perf", "DevMgt" and "CongestionManagment" (so spelt) each
#          attribute but the common ones (ClassPortInfo, Notice, InformInfo) is "<unknown>". An unknown method is "<unknown", without the end.
# Matters: A log of MADs that uses these names does not say which counters were read; print the number beside the name.
source "$(dirname "$0")/lib.sh"
debs trixie libibumad3=56.1-1 python3=3.13.5-1
mkdir -p "$tmp/share"
cat >"$tmp/share/names.py" <<'PY'
from _socket import htons
from ctypes import CDLL, c_char_p, c_uint8, c_uint16

umad = CDLL("libibumad.so.3")
for name in ("umad_class_str", "umad_method_str", "umad_attribute_str"):
    getattr(umad, name).restype = c_char_p
for management_class, attributes in ((1, (0x11, 0x15)), (3, (0x35, 0x38, 0xF3)), (4, (1, 0x12, 0x1D)), (6, (0x10, 0x11)), (7, (0x10, 0x17)), (0x21, (0x11, 0x15))):
    names = (f"{attribute:#x} {umad.umad_attribute_str(c_uint8(management_class), c_uint16(htons(attribute))).decode()}" for attribute in attributes)
    print(umad.umad_class_str(c_uint8(management_class)).decode(), *names, sep=", ")
print("method 0x1f:", umad.umad_method_str(c_uint8(4), c_uint8(0x1F)).decode())
PY
run python3 /tmp/names.py >"$seen"
check <<'OUT'
Subn, 0x11 NodeInfo, 0x15 PortInfo
SubnAdm, 0x35 PathRecord, 0x38 MCMemberRecord, 0xf3 InformInfoRecord
Perf, 0x1 Class Port Info, 0x12 <unknown>, 0x1d <unknown>
DevMgt, 0x10 <unknown>, 0x11 <unknown>
ComMgt, 0x10 ConnectRequest, 0x17 ServiceIDResReq
CongestionManagment, 0x11 <unknown>, 0x15 <unknown>
method 0x1f: <unknown
OUT
echo ok
