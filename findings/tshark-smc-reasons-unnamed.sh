#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The reason why an SMC-R connection falls back to TCP or a link is taken down is named as in Linux's headers: the diagnosis of a CLC Decline
#          (0x03030000: no SMC device, 0x03010000: the peer did not indicate SMC), and the reason code of a DELETE LINK (0x00010000: lost path).
# Seen:    Both are bare numbers, though the messages, their flags and even the code of the buffer's size (5: 512k) and of the MTU (3: 1024) have words.
# Matters: Why SMC-R fell back to TCP is known only with these headers beside the trace.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets tcp clc.pcap <<'HEX'
< e2d4c3d9 02 0044 18  0008020304050607 fe80000000000000000000fffe000002 020000000002 000055 00001234 01 00000007 53 00 0000000010000000 00 000123 e2d4c3d9
< e2d4c3d9 04 001c 10  0008020304050607 03030000 00000000 e2d4c3d9
< e2d4c3d9 04 001c 10  0008020304050607 03010000 00000000 e2d4c3d9
HEX
packets roce llc.pcap <<'HEX'
04 00 ffff 00 000066 00000100  04 2c 00 40 02 00010000 *56
HEX
for file in clc llc; do
    dissect $file.pcap -V | sed -n '/C Message/,/^$/p' | grep -E 'C Message|Diagnosis|Reason|Buffers Size|MTU' | sed 's/^ *//'
done >"$seen"
check <<'OUT'
CLC Message: Accept (2)
0101 .... = Server RMB Buffers Size (Compressed Notation): 5 (Size: 512k)
.... 0011 = QP MTU Value (enumerated value): 3 (MTU: 1024)
CLC Message: Decline (4)
Peer Diagnosis Information: 0x03030000
CLC Message: Decline (4)
Peer Diagnosis Information: 0x03010000
LLC Message: Delete Link (0x04)
Reason Code: 0x00010000
OUT
echo ok
