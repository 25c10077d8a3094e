#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The invariant CRC of a RoCEv1 packet stands where the payload length of its GRH says, as that of RoCEv2 stands at the end of the UDP datagram:
#          bytes that a switch, a tap or the FCS adds behind are a trailer of Ethernet.
# Seen:    The payload length is shown but not used. With four bytes of FCS the field of the invariant CRC holds the FCS, with ten bytes of trailer the last four of
#          them; the CRC itself and the rest of the trailer are data of the SEND. The preference that frames have an FCS changes nothing.
# Matters: Compare data and invariant CRC of RoCEv1 captures by the GRH's length.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
grh='020000000002 020000000001 8915 60000000 001c 1b 40 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002'
send='04 00 ffff 00 000066 80000100 6461746120646174 6120646174613131'
udp='020000000002 020000000001 0800 45000040000040004011 0000 0a000001 0a000002 c001 12b7 002c 0000'
packets ether v1.pcap <<HEX
$grh $send aabbccdd              # as on the wire, without the FCS
$grh $send aabbccdd 11223344     # with four bytes behind
$grh $send aabbccdd 00000000000000001234
$udp $send 00000000aabbccdd 00000000000000001234
HEX
for fcs in FALSE TRUE; do
    dissect v1.pcap --disable-protocol rpcordma -o "eth.fcs:$fcs" -T fields -E header=y -e infiniband.grh.paylen -e udp.length -e infiniband.invariant.crc -e data.data -e eth.trailer -e eth.fcs
done >"$seen"
check <<'OUT'
infiniband.grh.paylen	udp.length	infiniband.invariant.crc	data.data	eth.trailer	eth.fcs
28		0xaabbccdd	64617461206461746120646174613131		
28		0x11223344	64617461206461746120646174613131aabbccdd		
28		0x00001234	64617461206461746120646174613131aabbccdd000000000000		
	44	0xaabbccdd	6461746120646174612064617461313100000000	000000000000	0x00001234
infiniband.grh.paylen	udp.length	infiniband.invariant.crc	data.data	eth.trailer	eth.fcs
28		0xaabbccdd	64617461206461746120646174613131		
28		0x11223344	64617461206461746120646174613131aabbccdd		
28		0x00001234	64617461206461746120646174613131aabbccdd000000000000		
	44	0xaabbccdd	6461746120646174612064617461313100000000	000000000000	0x00001234
OUT
echo ok
