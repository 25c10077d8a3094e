#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which shows the congestion notification (IEEE 802.1Qau, QCN) that a neighbour announces by LLDP for each priority, knows the frames of it:
#          the tag with the flow of a frame (CN-TAG, EtherType 0x22e9) in front of RoCE, and the message to the sender (CNM, 0x22e7).
# Seen:    Of both EtherTypes there is neither a name nor a field. A RoCE frame with a CN-TAG is data of an unknown type: its BTH, shown without the tag, is
#          not looked for behind it, as it is behind a VLAN tag.
# Matters: On a link with QCN no filter on infiniband finds the lossless traffic; capture behind the switch that takes the tags off.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
grh=6000000000081b40fe80000000000000020000fffe000001fe80000000000000020000fffe000002
send="04 00 ffff 00 000012 00000001 00000000"
packets ether qcn.pcap <<HEX
0180c200000e 020000000001 88cc  0207 04 020000000001  0407 03 020000000001  0602 0078  fe06 0080c2 08 08 08  0000   # LLDP: priority 3
020000000002 020000000001 8915 $grh $send
020000000002 020000000001 8100 6001 8915 $grh $send
020000000002 020000000001 8100 6001 22e9 1234 8915 $grh $send                                # CN-TAG with flow 0x1234
020000000001 020000000002 22e9 1234 22e7 0040 1234567890abcdef 0064 0005 8915 020000000002 0000   *64  # CNM to the sender
HEX
dissect qcn.pcap -T fields -E separator=/s -E header=y -e frame.number -e frame.protocols -e infiniband.bth.destqp >"$seen"
dissect qcn.pcap -V | grep -E 'Congestion Notification|Priority 3 CNPV|Type: Unknown|^Data|Opcode' | sed 's/^ *//' >>"$seen"
check <<'OUT'
frame.number frame.protocols infiniband.bth.destqp
1 eth:ethertype:lldp 
2 eth:ethertype:infiniband:rpcordma 0x000012
3 eth:ethertype:vlan:ethertype:infiniband:rpcordma 0x000012
4 eth:ethertype:vlan:ethertype:data 
5 eth:ethertype:data 
IEEE 802.1 Chair - Congestion Notification
IEEE 802.1 Subtype: Congestion Notification (0x08)
.... 1... = Priority 3 CNPV Capability: Enabled
Opcode: Reliable Connection (RC) - SEND Only (4)
Opcode: Reliable Connection (RC) - SEND Only (4)
Type: Unknown (0x22e9)
Data (60 bytes)
Type: Unknown (0x22e9)
Data (50 bytes)
OUT
echo ok
