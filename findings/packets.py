"""packets.py KIND FILE: writes a capture of the packets on standard input.

Each line is one packet in hex, from the BTH to before the ICRC; spaces are ignored, `*N` pads with zeros to N bytes, `#` begins a comment, and
`<` before a packet of KIND `roce` turns its direction.
KIND `roce` wraps it in Ethernet, IPv4 and UDP port 4791, `ib` in an LRH, each with the invariant CRC (and the LRH's variant CRC) computed.
An InfiniBand capture has link type 147 (user 0), for which tshark needs `-o 'uat:user_dlts:...'`.
"""
import re
import struct
import sys
import zlib


def sum16(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def roce(payload, ends):
    udp = struct.pack(">4H", 49152, 4791, 8 + len(payload) + 4, 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 2, 20 + len(udp) + len(payload) + 4, 0, 0x4000, 64, 17, 0, *(bytes([10, 0, 0, end]) for end in ends))
    ip = ip[:10] + struct.pack(">H", sum16(ip)) + ip[12:]
    masked = b"\xff" * 8 + ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    masked += udp[:6] + b"\xff\xff" + payload[:4] + b"\xff" + payload[5:]
    ether = bytes.fromhex("020000000002 020000000001 0800")
    return ether + ip + udp + payload + struct.pack("<I", zlib.crc32(masked))


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xD008 if crc & 1 else 0)
    return crc ^ 0xFFFF


def ib(payload, _ends):
    lane = 15 if payload[5:8] == b"\0\0\0" else 0
    lrh = struct.pack(">BBHHH", lane << 4, 2, 1, (8 + len(payload) + 4) // 4, 2)
    masked = bytes([lrh[0] | 0xF0]) + lrh[1:] + payload[:4] + b"\xff" + payload[5:]
    packet = lrh + payload + struct.pack("<I", zlib.crc32(masked))
    return packet + struct.pack("<H", crc16(packet))


def main():
    kind, path = sys.argv[1:]
    wrap, link = {"roce": (roce, 1), "ib": (ib, 147)}[kind]
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link))
        for index, line in enumerate(line for line in (line.split("#")[0].strip() for line in sys.stdin) if line):
            packet = b""
            for word in re.findall(r"\*\d+|[0-9a-f]+", line):
                packet = packet.ljust(int(word[1:]), b"\0") if word[0] == "*" else packet + bytes.fromhex(word)
            packet = wrap(packet, (2, 1) if line.startswith("<") else (1, 2))
            out.write(struct.pack("<IIII", index, 0, len(packet), len(packet)) + packet)


main()
