#!/usr/bin/env bash
# Package: libibumad3 56.1 (Debian 13).
# Guess:   umad_sa_mad_status_str, which takes a whole MAD status in network order, names whatever is wrong in an answer of the SA, or says that it is
#          no error of its class.
# Seen:    It looks at the class's half only and says "Success" of busy, bad version and unsupported method and attribute; its twin
#          umad_common_mad_status_str says "Success" of "no records" and of a denied request.
# Matters: Neither string alone tells whether a query worked: test the 16 bits against 0, then ask both.
source "$(dirname "$0")/lib.sh"
debs trixie libibumad3=56.1-1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/status.py" <<'PY'
import ctypes
import socket

umad = ctypes.CDLL("libibumad.so.3")
for status in (0x0000, 0x0001, 0x0004, 0x0008, 0x000C, 0x001C, 0x0100, 0x0300, 0x0700):
    names = []
    for function in (umad.umad_common_mad_status_str, umad.umad_sa_mad_status_str):
        function.restype = ctypes.c_char_p
        names.append(function(ctypes.c_uint16(socket.htons(status))).decode())
    print(f"{status:#06x}: common {names[0]!r}, SA {names[1]!r}")
PY
run python3 /tmp/status.py >"$seen"
check <<'OUT'
0x0000: common 'Success', SA 'Success'
0x0001: common 'Busy', SA 'Success'
0x0004: common 'Bad Version', SA 'Success'
0x0008: common 'Method not supported', SA 'Success'
0x000c: common 'Method/Attribute combo not supported', SA 'Success'
0x001c: common 'Invalid attribute/modifier field', SA 'Success'
0x0100: common 'Success', SA 'No Resources'
0x0300: common 'Success', SA 'No Records'
0x0700: common 'Success', SA 'Request Denied'
OUT
echo ok
