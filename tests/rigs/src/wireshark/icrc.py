"""ICRCs of a capture file, with zlib's CRC-32 and nothing of this project: one line per frame, "ok", "bad" or "other"."""

import struct
import sys
import zlib


def icrc(frame):
    at = 14
    kind = frame[12:14]
    if kind == b"\x81\x00":
        at, kind = 18, frame[16:18]
    if kind == b"\x08\x00" and frame[at + 9] == 17:
        end = at + struct.unpack_from(">H", frame, at + 2)[0]
        bth, masked = at + 28, [1, 8, 10, 11, 26, 27]
        port = struct.unpack_from(">H", frame, at + 22)[0]
    elif kind == b"\x86\xdd" and frame[at + 6] == 17:
        end = at + 40 + struct.unpack_from(">H", frame, at + 4)[0]
        bth, masked = at + 48, [1, 2, 3, 7, 46, 47]
        port = struct.unpack_from(">H", frame, at + 42)[0]
    elif kind == b"\x89\x15":
        end = at + 40 + struct.unpack_from(">H", frame, at + 4)[0]
        bth, masked, port = at + 40, [1, 2, 3, 7], 4791
    else:
        return None
    if port != 4791:
        return None
    covered = bytearray(frame[at : end - 4])
    for offset in masked:
        covered[offset] = 0xFF
    if kind != b"\x08\x00":
        covered[0] |= 0x0F
    covered[bth - at + 4] = 0xFF
    crc = zlib.crc32(b"\xff" * 8 + bytes(covered)).to_bytes(4, "little")
    return crc == frame[end - 4 : end]


with open(sys.argv[1], "rb") as file:
    data = file.read()
at = 24
while at < len(data):
    kept = struct.unpack_from("<I", data, at + 8)[0]
    right = icrc(data[at + 16 : at + 16 + kept])
    print("other" if right is None else "ok" if right else "bad")
    at += 16 + kept
