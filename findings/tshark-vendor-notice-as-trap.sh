#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A Notice with IsGeneric 0 is a vendor's: its numbers are shown as vendor ID and device ID, its data as bytes. The headline of a generic
#          trap names the LID, the port and the keys that it reports.
# Seen:    IsGeneric decides nothing: a notice of vendor 0x0002c9 about device 0x0101 (257) is "(Security) Bad P_Key", with keys, QPs and GIDs
#          read out of the vendor's data. In the headline of every trap the values are placeholders, "<LIDADDR1>" and "<KEY>", never filled in.
# Matters: A trap number in a capture is one only if IsGeneric is 1: filters for traps have to test it as well, and LIDs are read from the rows below.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
report='64 00 ffff 00 000001 00000001  80010000 00000001  01 03 02 06 0000 0000 0000000000000078 0002 0000 00000000  01 01 07 00 00000001 00000014 0000000000000000 0000 0000 0000000000000000'
details='0000 0007 0009 00008001 50000012 00000034 fe800000000000000002c90300000001 fe800000000000000002c90300000002 *276'
packets ib notice.pcap <<HEX
$report 82 000004 0101 0005 0003 $details # generic, from the subnet manager, trap 257
$report 01 0002c9 0101 0005 0003 $details # not generic: vendor 0x0002c9, device 0x0101
$report 01 0002c9 1017 0005 0003 $details # the same, device 0x1017
HEX
dissect notice.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V | grep -E '\(Security\)|Trap Number!|IsGeneric|VendorID|DeviceID|IssuerLID|Trap .*DataDetails|Vendor Specific|LIDADDR|KEY:|QP[12]:|GIDADDR' |
    sed 's/^ *//' >"$seen"
check <<'OUT'
(Security) Bad P_Key, <KEY> from <LIDADDR1><GIDADDR1><QP1> to <LIDADDR2><GIDADDR2><QP2> on <SL>
1... .... = IsGeneric: 0x1
ProducerTypeVendorID: 0x000004
TrapNumberDeviceID: 0x0101
IssuerLID: 0x0005
Trap 257 DataDetails
LIDADDR1: 0x0007
LIDADDR2: 0x0009
KEY: 0x00008001
QP1: 0x000012
QP2: 0x000034
GIDADDR1: fe80::2:c903:0:1
GIDADDR2: fe80::2:c903:0:2
(Security) Bad P_Key, <KEY> from <LIDADDR1><GIDADDR1><QP1> to <LIDADDR2><GIDADDR2><QP2> on <SL>
0... .... = IsGeneric: 0x0
ProducerTypeVendorID: 0x0002c9
TrapNumberDeviceID: 0x0101
IssuerLID: 0x0005
Trap 257 DataDetails
LIDADDR1: 0x0007
LIDADDR2: 0x0009
KEY: 0x00008001
QP1: 0x000012
QP2: 0x000034
GIDADDR1: fe80::2:c903:0:1
GIDADDR2: fe80::2:c903:0:2
Unknown or Vendor Specific Trap Number! (0x1017)
0... .... = IsGeneric: 0x0
ProducerTypeVendorID: 0x0002c9
TrapNumberDeviceID: 0x1017
IssuerLID: 0x0005
Vendor Specific Subnet Management Trap
OUT
echo ok
