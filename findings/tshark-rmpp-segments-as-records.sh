#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A table of the SA in two RMPP segments is reassembled, or the second segment shown as raw data; an ACK has no attribute.
# Seen:    Each segment is dissected as if a record began in it: the first shows one NodeRecord of the 1.8 in it, the second another one of bytes that
#          are the middle of a record (LID 0, port GUID 0x0003000001010102 out of a LID and its neighbours), and the ACK a third of zeros. The
#          RMPP version stands in a second "RMPP Type".
# Matters: A NodeRecord or PathRecord that tshark shows from a table's second segment on was never sent; take the records from the bytes.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
python3 - <<'PY' | packets ib rmpp.pcap
import struct


def record(lid):
    node = struct.pack(">4B3QHHIB3s64s", 1, 1, 1, 2, 1, 2, 3, 64, 0x1021, 0, 1, bytes([0, 2, 0xC9]), b"host")
    return (struct.pack(">HH", lid, 0) + node).ljust(112, b"\0")


def mad(kind, flags, word1, word2, data=b""):
    header = "64 00 ffff 00 000001 00000001 80010000 00000001 01 03 02 92 0000 0000 0000000000001234 0011 0000 00000000 01"
    print(header, f"{kind:02x} {flags:02x} 00 {word1:08x} {word2:08x}", data.hex(), "*276")


table = record(1) + record(2) + record(3)
sa = struct.pack(">QHHQ", 0, 112 // 8, 0, 0)
mad(1, 0x03, 1, len(table) + 2 * len(sa), sa + table[:200])
mad(1, 0x05, 2, len(table) - 200 + len(sa), sa + table[200:])
mad(2, 0x01, 1, 64)
PY
dissect rmpp.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E '^ *RMPP|Segment Number|Payload Length|^ {12}(LID|NodeType|PortGUID|NodeString)' | sed 's/^ *//; s/ *$//' >"$seen"
check <<'OUT'
RMPP (DATA)
RMPP Type: 0x01
RMPP Type: 0x01
RMPP Status:  (Normal) (0x00)
Segment Number: 0x00000001
Payload Length: 0x00000178
LID: 0x0001
NodeType: 0x01
PortGUID: 0x0000000000000003
NodeString: host
RMPP (DATA)
RMPP Type: 0x01
RMPP Type: 0x01
RMPP Status:  (Normal) (0x00)
Segment Number: 0x00000002
Payload Length: 0x0000009c
LID: 0x0000
NodeType: 0x00
PortGUID: 0x0003000001010102
NodeString:
RMPP (ACK)
RMPP Type: 0x01
RMPP Type: 0x02
RMPP Status:  (Normal) (0x00)
Segment Number: 0x00000001
LID: 0x0000
NodeType: 0x00
PortGUID: 0x0000000000000000
NodeString:
OUT
echo ok
