#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which knows LNet over o2ib from the connection's private data on, shows a network identifier as Lustre's own tools do: 10.0.0.1@o2ib.
# Seen:    The identifier has its address backwards, 1.0.0.10@o2ib0, in CONNREQ, CONNACK and NOOP alike. The same four bytes are "10.0.0.1" in the row
#          below it. lnet.src_nid and lnet.dest_nid have no value to filter by; lnet.nid.addr is one name for both ends.
# Matters: A list of peers out of such a dump names hosts that do not exist, or other ones; take the rows below, or the IP header.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
client=0100000a00000500 server=0200000a00000500
# The header of an o2iblnd message: TYPE, its length as 32 bits in little endian, sender, receiver.
header() { echo "911be90b 1200 $1 08 $2 00000000 $3 a0b1c2d3e4f50500 $4 a1b1c2d3e4f50500"; }
packets roce lnet.pcap <<HEX
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000  11223344 00000000 00000000010603db 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100b7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184  00 40 8765 000000000000000000000000 0a000001 000000000000000000000000 0a000002 $(header c0 38000000 $client $server) 0800 0001 00001000 *276
< 64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000  55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002 $(header c1 38000000 $server $client) 0800 0001 00001000 *276
64 00 ffff 00 000001 00000003  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0014 0000 00000000  11223344 55667788 *276
04 00 ffff 00 000066 00000101  $(header d0 30000000 $client $server)
HEX
{
    dissect lnet.pcap -V | grep -E 'Type of IB message|nid:|lnd address' | sed 's/^ *//'
    dissect lnet.pcap -Y lnet -T fields -E header=y -e ip.src -e lnet.src_nid -e lnet.nid.addr
} >"$seen"
check <<'OUT'
Type of IB message: IBLND_MSG_CONNREQ (0xc0)
Src nid: 1.0.0.10@o2ib0
lnd address: 10.0.0.1
Dest nid: 2.0.0.10@o2ib0
lnd address: 10.0.0.2
Type of IB message: IBLND_MSG_CONNACK (0xc1)
Src nid: 2.0.0.10@o2ib0
lnd address: 10.0.0.2
Dest nid: 1.0.0.10@o2ib0
lnd address: 10.0.0.1
Type of IB message: IBLND_MSG_NOOP (0xd0)
Src nid: 1.0.0.10@o2ib0
lnd address: 10.0.0.1
Dest nid: 2.0.0.10@o2ib0
lnd address: 10.0.0.2
ip.src	lnet.src_nid	lnet.nid.addr
10.0.0.1	1	10.0.0.1,10.0.0.2
10.0.0.2	1	10.0.0.2,10.0.0.1
10.0.0.1	1	10.0.0.1,10.0.0.2
OUT
echo ok
