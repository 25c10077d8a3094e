#!/usr/bin/env bash
# Package: scapy 2.8.0 (PyPI), scapy.contrib.roce.
# Guess:   Scapy's RoCE layer has the extended headers of the base transport (RETH, AtomicETH, DETH, ImmDt), names SEND with Invalidate, takes GIDs as
#          IPv6 text, and sets the pad count of a payload that is no multiple of four.
# Seen:    Only BTH, AETH, GRH and the CNP's padding exist: a RETH is raw payload. Opcodes 0x16 and 0x17 (and the reserved 0x15) have no name.
#          GRH's GIDs are integers; text raises a TypeError. One byte of payload is sent with pad count 0 and without pad, an invalid packet.
#          The invariant CRC is right.
# Matters: Packet tests built on it must write RETH, DETH and pad bytes by hand; ours make their packets from fields of their own.
source "$(dirname "$0")/lib.sh"
wheels scapy==2.8.0
python3 - >"$seen" 2>/dev/null <<'PY'
import struct
import zlib

from scapy.all import IP, UDP, Ether, Raw
from scapy.contrib import roce
from scapy.packet import Packet

print("layers:", *sorted(n for n, c in vars(roce).items() if isinstance(c, type) and issubclass(c, Packet) and c.__module__ == roce.__name__))
print("opcodes below 0x18 without a name:", *(hex(n) for n in range(0x18) if n not in roce._bth_opcodes))
payload = struct.pack(">QII", 0x1000, 7, 1) + b"Z"
packet = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=49152, dport=4791, chksum=0) / roce.BTH(opcode=0x0A, dqpn=17, psn=1) / Raw(payload))
print("RDMA WRITE Only of 1 byte:", " / ".join(layer.__name__ for layer in IP(packet).layers()), "pad count", IP(packet)[roce.BTH].padcount, "BTH and after:", len(packet) - 28)
masked = b"\xff" * 8 + packet[:1] + b"\xff" + packet[2:8] + b"\xff" + packet[9:10] + b"\xff\xff" + packet[12:26] + b"\xff\xff" + packet[28:32] + b"\xff" + packet[33:-4]
print("invariant CRC is that of the packet:", packet[-4:] == struct.pack("<I", zlib.crc32(masked)))
try:
    bytes(Ether() / roce.GRH(sgid="fe80::1", dgid="fe80::2") / roce.BTH())
except TypeError as error:
    print("GRH with text:", type(error).__name__)
PY
check <<'OUT'
layers: AETH BTH CNPPadding GRH
opcodes below 0x18 without a name: 0x15 0x16 0x17
RDMA WRITE Only of 1 byte: IP / UDP / BTH / Raw pad count 0 BTH and after: 33
invariant CRC is that of the packet: True
GRH with text: TypeError
OUT
echo ok
