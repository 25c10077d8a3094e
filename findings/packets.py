"""packets.py KIND FILE: writes a capture of the packets on standard input.

Each line is one packet in hex; spaces are ignored, `*N` pads with zeros to N bytes, `#` begins a comment, and `<` before a packet of KIND `roce`
or `tcp` turns its direction.
For KIND `roce` and `ib` it goes from the BTH to before the ICRC: `roce` wraps it in Ethernet, IPv4 and UDP port 4791, `ib` in an LRH, each with the
invariant CRC (and the LRH's variant CRC) computed. An InfiniBand capture has link type 147 (user 0), for which tshark needs `-o 'uat:user_dlts:...'`.
For KIND `tcp` it is the data of a segment of one connection to port 5555, after its handshake, in which `crc` stands for the CRC32C of all before it.
For KIND `ether` it is a whole frame without its FCS, and for KIND `link` a packet of InfiniBand's link layer, written as an ERF record of type 25.
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


SENT = {1: 1000, 2: 2000}


def tcp(payload, ends, flags=0x18):
    """A segment between 10.0.0.1, port 40000, and 10.0.0.2, port 5555."""
    source, sink = ends
    ports = {1: 40000, 2: 5555}
    head = struct.pack(">HHIIBBHHH", ports[source], ports[sink], SENT[source], SENT[sink], 5 << 4, flags, 65535, 0, 0)
    SENT[source] += len(payload) + (flags >> 1 & 1)
    addresses = bytes([10, 0, 0, source, 10, 0, 0, sink])
    summed = addresses + struct.pack(">HH", 6, len(head) + len(payload)) + head + payload
    head = head[:16] + struct.pack(">H", sum16(summed + bytes(len(summed) % 2))) + head[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(head) + len(payload), 0, 0x4000, 64, 6, 0) + addresses
    ip = ip[:10] + struct.pack(">H", sum16(ip)) + ip[12:]
    return bytes.fromhex("020000000002 020000000001 0800") + ip + head + payload


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def bare(packet, _ends):
    return packet


def parse(line):
    packet = b""
    for word in re.findall(r"\*\d+|crc|[0-9a-f]+", line):
        if word == "crc":
            packet += crc32c(packet)
        else:
            packet = packet.ljust(int(word[1:]), b"\0") if word[0] == "*" else packet + bytes.fromhex(word)
    return packet


def main():
    kind, path = sys.argv[1:]
    wrap, link = {"roce": (roce, 1), "ib": (ib, 147), "tcp": (tcp, 1), "ether": (bare, 1), "link": (bare, None)}[kind]
    packets = [tcp(b"", (1, 2), 2), tcp(b"", (2, 1), 0x12)] if kind == "tcp" else []
    lines = (line.split("#")[0].strip() for line in sys.stdin)
    packets += [wrap(parse(line), (2, 1) if line.startswith("<") else (1, 2)) for line in lines if line]
    with open(path, "wb") as out:
        if link:
            out.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link))
        for index, packet in enumerate(packets):
            if link:
                out.write(struct.pack("<IIII", index, 0, len(packet), len(packet)) + packet)
            else:
                padded = packet + bytes(-len(packet) % 8)
                out.write(struct.pack("<Q", index + 1 << 32) + struct.pack(">BBHHH", 25, 4, 16 + len(padded), 0, len(packet)) + padded)


main()
