#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The link-layer address of an IPv6 neighbour solicitation over IPoIB is shown with its 20 bytes, as that of an ARP request is: the option has 24
#          bytes, of which 2 are type and length and 2 the padding that RFC 4391 puts before the address.
# Seen:    The padding counts as part of the address: 22 bytes, of which the first two are zeros, beside the 20 of ARP's sender.
# Matters: One interface has two hardware addresses in a capture with both families: a comparison of them has to cut the first two bytes off, and the
#          queue pair, in the second to fourth byte for ARP, is in the fourth to sixth here.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib neighbours.pcap <<'HEX'
64 00 ffff 00 ffffff 00000001 00000b1b 00000048  0806 0000 0020 0800 14 04 0001 00000048 fe80000000000000 0002c90300000001 0a000001 00000000 0000000000000000 0000000000000000 0a000002
64 00 ffff 00 000049 00000001 00000b1b 00000048  86dd 0000 60000000 0030 3a ff fe800000000000000202c90300000001 ff0200000000000000000001ff000002 87 00 1eab 00000000 fe800000000000000202c90300000002 01 03 0000 00000048 fe80000000000000 0002c90300000001
HEX
dissect neighbours.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V |
    grep -E 'Sender hardware|Checksum|ink-layer address' | sed 's/^ *//' >"$seen"
check <<'OUT'
Sender hardware address: 00000048fe800000000000000002c90300000001
Checksum: 0x1eab [correct]
[Checksum Status: Good]
ICMPv6 Option (Source link-layer address)
Type: Source link-layer address (1)
Link-layer address: 000000000048fe800000000000000002c90300000001
OUT
echo ok
