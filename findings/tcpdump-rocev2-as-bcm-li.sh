#!/usr/bin/env bash
# Package: tcpdump 4.99.5 (Debian 13).
# Guess:   tcpdump has no decoder for RDMA: a RoCEv2 packet is "UDP, length" and a RoCEv1 frame its EtherType by name, RoCE (0x8915).
# Seen:    A RoCEv2 packet is decoded, as another protocol: UDP port 4791 is "BCM-LI-SHIM", a header of Broadcom's switches, with a direction and an
#          identifier (li-id 65535) that is the P_Key. EtherType 0x8915 is "Unknown". The frame that stops a lossless class, a PFC pause
#          (opcode 0x0101 of MAC control), is MPCP of passive optical networks, with a timestamp made of its class vector and pause time.
# Matters: tcpdump on a host with RoCE traffic seems to find a vendor's switch tags; select with "udp port 4791", "ether proto 0x8915" and "ether
#          proto 0x8808 and ether[14:2] = 0x0101", and read the bytes with tshark.
source "$(dirname "$0")/lib.sh"
debs trixie tcpdump=4.99.5-2
packets ether frames.pcap <<'HEX'
020000000002 020000000001 8915  60000000 001c 1b 40 fe800000000000000000000000000001 fe800000000000000000000000000002  64 00 ffff 00 000012 00000005 01020304 00 000006 0708090a *82
0180c2000001 020000000001 8808  0101 0018 0000 0000 0000 ffff 0100 *60
HEX
packets roce routed.pcap <<'HEX'
64 00 ffff 00 000012 00000005 01020304 00 000006 0708090a
HEX
for capture in frames routed; do
    run tcpdump -Z root -t -e -n -r /tmp/$capture.pcap 2>/dev/null | grep -v $'^\t'
done >"$seen"
for filter in 'ether proto 0x8915' 'ether proto 0x8808 and ether[14:2] = 0x0101'; do
    echo "$filter: $(run tcpdump -Z root -t -n -r /tmp/frames.pcap "$filter" 2>/dev/null | grep -vc $'^\t') packet"
done >>"$seen"
check <<'OUT'
02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype Unknown (0x8915), length 82: 
02:00:00:00:00:01 > 01:80:c2:00:00:01, ethertype MPCP (0x8808), length 60: MPCP, Opcode Unknown (257), Timestamp 1572864 ticks, length 46
02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 70: 10.0.0.1.49152 > 10.0.0.2.4791: BCM-LI-SHIM: direction ingress, pkt-type unknown, pkt-subtype unknown, li-id 65535
ether proto 0x8915: 1 packet
ether proto 0x8808 and ether[14:2] = 0x0101: 1 packet
OUT
echo ok
