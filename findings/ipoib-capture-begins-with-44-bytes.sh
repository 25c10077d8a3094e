#!/usr/bin/env bash
# Package: tcpdump 4.99.5 and tshark 4.4.19 (Debian 13).
# Guess:   A packet of link type 242, "RFC 4391 IP-over-Infiniband", begins with that document's header: two bytes of EtherType and two of zeros. tcpdump
#          and tshark show the ARP request in it with a hardware address of 20 bytes.
# Seen:    Both want 40 bytes before the header, with a GRH or, after 20 zeros, a hardware address in them. Of the packet as the RFC has it tshark makes
#          GIDs and a "Source QPN", tcpdump an unknown EtherType. tcpdump's filters refuse the link type altogether, even "arp". The hardware
#          address is 20 bytes without structure: neither queue pair nor GID.
# Matters: A program that writes IPoIB packets has to put 40 zeros before each; select packets with tshark, not with a filter of tcpdump.
source "$(dirname "$0")/lib.sh"
debs trixie tcpdump=4.99.5-2 tshark=4.4.19-0+deb13u1
mkdir -p "$tmp/share"
python3 - "$tmp/share/ipoib.pcap" <<'PY'
import struct
import sys

arp = bytes.fromhex("0806 0000  0020 0800 14 04 0001  00000048 fe800000000000000200000000000001 0a000001") + bytes(20) + bytes([10, 0, 0, 2])
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 242))
    for packet in (arp, bytes(40) + arp):
        out.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)
PY
{
    run tcpdump -Z root -t -n -r /tmp/ipoib.pcap 2>&1 | grep -v $'^\t' | sed 's/^reading.*, link/link/; s/^ *, //'
    run tcpdump -Z root -r /tmp/ipoib.pcap arp 2>&1 | sed -n 's/^tcpdump: //p' || true
    dissect ipoib.pcap
    dissect ipoib.pcap -V | grep -E '^ +(Source QPN|Source GID|Type|Hardware type|Sender hard)'
} | sed -E 's/^ +//; s/ +$//' >"$seen"
check <<'OUT'
link-type IPOIB (RFC 4391 IP-over-Infiniband), snapshot length 65535
ethertype Unknown (0x0000), length 60:
ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 56
RFC 4391 IP-over-Infiniband link-layer type filtering not implemented
1   0.000000              →              IPoIB 60 IP over Infiniband
2   0.000000              →              ARP 100 Who has 10.0.0.2? Tell 10.0.0.1
Source QPN: 0x200800
Source GID: 1404:1:0:48:fe80::
Type: Unknown (0x0000)
Type: ARP (0x0806)
Hardware type: InfiniBand (32)
Sender hardware address: 00000048fe800000000000000200000000000001
OUT
echo ok
