#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A ServiceRecord of the SA is shown with its name as text, as that of a ServiceAssociationRecord is and as NodeString is, and with its data in
#          the fields that it has: 16 of 8 bits, 8 of 16, 4 of 32 and 2 of 64.
# Seen:    The name is 64 bytes in hex, in a ServiceAssociationRecord it is text. The data are four strings of 16 bytes, in which no element can be named.
# Matters: A service of the SA is found in a capture by the hex digits of its name.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
sa='64 00 ffff 00 000001 00000001 80010000 00000001  01 03 02 81 0000 0000 0000000000001234'
packets ib services.pcap <<HEX
$sa 0031 0000 00000000 *48 *56 *76 1000000000000001 fe800000000000000200000000000001 ffff 0000 00000e10 *124 6e66732d72646d61 *188 01020304 *204 00110022 *220 00000011 *236 0000000000000011 *276
$sa 003b 0000 00000000 *48 *56 *76 *92 6e66732d72646d61 *276
HEX
dlt='uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
dissect services.pcap -o "$dlt" -V | grep -E 'Attribute \(|Service(Name|Data):' | sed -E 's/^ *//; s/0{60,}/.../' >"$seen"
check <<'OUT'
Attribute (ServiceRecord)
ServiceName: 6e66732d72646d61...
ServiceData: 01020304000000000000000000000000(ServiceData 8.1, 8.16)
ServiceData: 00110022000000000000000000000000(ServiceData 16.1, 16.8)
ServiceData: 00000011000000000000000000000000(ServiceData 32.1, 32.4)
ServiceData: 00000000000000110000000000000000(ServiceData 64.1, 64.2)
Attribute (ServiceAssociationRecord)
ServiceName: nfs-rdma
OUT
echo ok
