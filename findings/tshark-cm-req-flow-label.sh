#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The primary path's flow label of a CM REQ is shown as it was sent, 0x12345; the reserved bits after it as 0.
# Seen:    Flow label 0x00123: the field is read from three bytes with a mask for four, so the low byte is lost, and four of the label's bits
#          count as reserved ones. The same label in an SA PathRecord is shown right.
# Matters: RoCEv2 derives UDP source ports from this label; the label of a REQ has to be read from the bytes (offset 88 of the CM message).
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce req.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000 11223344 00000000 0000000001061234 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 12345003 00 40 08 98 *276
HEX
dissect req.pcap -V | sed -n '/Primary Flow/,/Primary Packet Rate/p' | sed 's/^ *//' >"$seen"
check <<'OUT'
0000 0000 0001 0010 0011 .... .... .... = Primary Flow Label: 0x00123
.... .... .... .... .... 0000 01.. .... = Reserved: 0x01
.... .... .... .... .... .... ..00 0011 = Primary Packet Rate: 0x03
OUT
echo ok
