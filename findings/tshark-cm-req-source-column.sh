#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The source column of a RoCEv2 packet is the IPv4 source address, whatever it carries.
# Seen:    A CM REQ rewrites it to "LID: 65535", the primary local LID that Linux puts in a REQ over RoCEv2; the destination column stays.
#          The REP of the same connection keeps its addresses, and ip.src is untouched.
# Matters: Scripts that pick packets by the source column lose exactly the REQs; they should ask for ip.src.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce req.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000 11223344 00000000 0000000001061234 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *276
64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000 55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002 *276
HEX
dissect req.pcap -T fields -E header=y -e _ws.col.Source -e ip.src -e _ws.col.Destination -e _ws.col.Info >"$seen"
check <<'OUT'
_ws.col.def_src	ip.src	_ws.col.def_dst	_ws.col.info
LID: 65535	10.0.0.1	10.0.0.2	CM: ConnectRequest
10.0.0.1	10.0.0.1	10.0.0.2	CM: ConnectReply
OUT
echo ok
