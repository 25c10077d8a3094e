"""ICRCs of a capture file, with zlib's CRC-32 and nothing of this project: one line per frame, "ok", "bad" or "other".
Packets of InfiniBand's link layer also have a VCRC."""

import struct
import sys
import zlib


def icrc(frame):
    at = 14
    kind = frame[12:14]
    if kind == b"\x81\x00":
        at, kind = 18, frame[16:18]
    if kind == b"\x08\x00" and frame[at + 9] == 17:
        # Fragments are for hosts, and only the first one has a port.
        if struct.unpack_from(">H", frame, at + 6)[0] & 0x3FFF:
            return None
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


def remainder(byte):
    """Of a byte and 16 zeros, divided by the polynomial: the highest bit is the first."""
    value = byte << 16
    while value.bit_length() > 16:
        value ^= 0x1100B << (value.bit_length() - 17)
    return value


REMAINDERS = [remainder(byte) for byte in range(256)]
REVERSED = [int(f"{byte:08b}"[::-1], 2) for byte in range(256)]


def vcrc(data):
    value = 0xFFFF
    for byte in data:
        value = (value << 8 & 0xFFFF) ^ REMAINDERS[value >> 8 ^ REVERSED[byte]]
    return int(f"{value ^ 0xFFFF:016b}"[::-1], 2).to_bytes(2, "little")


def crcs(packet):
    covered = bytearray(packet[:-6])
    covered[0] |= 0xF0
    bth = 8
    if packet[1] & 3 == 3:
        bth = 48
        covered[8] |= 0x0F
        for offset in [9, 10, 11, 15]:
            covered[offset] = 0xFF
    covered[bth + 4] = 0xFF
    right = zlib.crc32(bytes(covered)).to_bytes(4, "little")
    return packet[-6:-2] == right and packet[-2:] == vcrc(packet[:-2])


with open(sys.argv[1], "rb") as file:
    data = file.read()
# ERF records have a header of their own.
erf = struct.unpack_from("<I", data, 20)[0] == 197
at = 24
while at < len(data):
    kept = struct.unpack_from("<I", data, at + 8)[0]
    record = data[at + 16 : at + 16 + kept]
    right = crcs(record[16:]) if erf else icrc(record)
    print("other" if right is None else "ok" if right else "bad")
    at += 16 + kept
