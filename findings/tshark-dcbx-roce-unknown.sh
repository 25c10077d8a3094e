#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   An application priority that a switch announces by DCBX for RoCE is named where it is an EtherType (0x8915), which Wireshark's table of
#          EtherTypes has, and is a number where it is RoCEv2's UDP port (4791).
# Seen:    Both are an "Unknown Application", while FCoE, FIP and iSCSI have names. The same program calls 0x8915 "RDMA over Converged Ethernet" where
#          it is the type of a frame.
# Matters: Whether a switch has put RoCE into a lossless class is found by the numbers: 0x8915 with selector 1, 0x12b7 with selector 3 or 4.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ether dcbx.pcap <<'HEX'
0180c200000e 020000000001 88cc  0207 04 020000000001  0407 03 020000000001  0602 0078  fe14 0080c2 0c 00 618915 620cbc 618906 618914 6312b7 *54 0000
HEX
dissect dcbx.pcap -V | sed -n '/IEEE 802.1 Subtype/,/End of LLDPDU/p' | grep -E 'Application$|Selector|Id:' | sed 's/^ *//' >"$seen"
check <<'OUT'
Unknown Application
.... .001 = Application Selector: Default or Ethertype (1)
Application Protocol Id: 0x8915
iSCSI Application
.... .010 = Application Selector: Port over TCP/SCTP (2)
Application Protocol Id: 0x0cbc
FCoE Application
.... .001 = Application Selector: Default or Ethertype (1)
Application Protocol Id: 0x8906
FiP Application
.... .001 = Application Selector: Default or Ethertype (1)
Application Protocol Id: 0x8914
Unknown Application
.... .011 = Application Selector: Port over UDP/DCCP (3)
Application Protocol Id: 0x12b7
OUT
echo ok
