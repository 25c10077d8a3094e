#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Of an MPA request of revision 2 (RFC 6581, since 2012) the flag S is named, and the enhanced setup is taken off the private data: IRD and ORD,
#          and the flags for peer-to-peer connections and for the first message.
# Seen:    The revision is shown as 2, and everything else is read as in revision 1: S counts as one of five reserved bits, and the four bytes of the
#          setup are the beginning of the private data.
# Matters: How many READs the ends agreed on, the first question when iWARP stalls, has to be read from the first four bytes: 14 bits each.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets tcp mpa.pcap <<'HEX'
4d504120494420526571204672616d65 50 02 0008  8010 8004 61626364      # CRC and S; peer to peer, IRD 16, begins with an empty WRITE, ORD 4; "abcd"
< 4d504120494420526570204672616d65 50 02 0004  8004 8010             # the same with IRD 4 and ORD 16
HEX
dissect mpa.pcap -V | sed -n '/Marker flag/,/Private data:/p' | sed 's/^ *//' >"$seen"
check <<'OUT'
0... .... = Marker flag: False
.1.. .... = CRC flag: True
..0. .... = Connection rejected flag: False
...1 0000 = Reserved: 0x10
Revision: 2
Private data length: 8 bytes
Private data: 8010800461626364
0... .... = Marker flag: False
.1.. .... = CRC flag: True
..0. .... = Connection rejected flag: False
...1 0000 = Reserved: 0x10
Revision: 2
Private data length: 4 bytes
Private data: 80048010
OUT
echo ok
