#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Beside subnet management, the SA, the CM and performance, Wireshark knows the other classes of the architecture: the congestion class by
#          name, device management with the attributes that SRP needs (IOUnitInfo, IOControllerProfile).
# Seen:    Device management, baseboard management and SNMP tunnelling have a name and "Dissector Not Implemented". Congestion control (0x21) and the
#          device administration class (0x10) are "Application Specific". Of a MAD of such a class or of a vendor's the invariant CRC is missing too.
# Matters: What an SRP target answers, and the congestion settings of OpenSM, have to be read from the bytes; filter by infiniband.mad.mgmtclass.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce classes.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 06 01 81 0000 0000 0000000000000007 0010 0000 00000000 *276      # device management, IOUnitInfo
64 00 ffff 00 000001 00000002  80010000 00000001  01 05 01 81 0000 0000 0000000000000007 0010 0000 00000000 *276      # baseboard management
64 00 ffff 00 000001 00000003  80010000 00000001  01 08 01 81 0000 0000 0000000000000007 0010 0000 00000000 *276      # SNMP tunnelling
64 00 ffff 00 000001 00000004  80010000 00000001  01 21 02 81 0000 0000 0000000000000007 0011 0000 00000000 *276      # congestion control, CongestionInfo
64 00 ffff 00 000001 00000005  80010000 00000001  01 10 01 81 0000 0000 0000000000000007 0010 0000 00000000 *276      # device administration
64 00 ffff 00 000001 00000006  80010000 00000001  01 0a 01 81 0000 0000 0000000000000007 0017 0000 00000000 *276      # a vendor's, without OUI
HEX
dissect classes.pcap -V | grep -E 'Management Class|Not Implemented|Invariant' | sed -E 's/^ *//; s/CRC: .*/CRC/' >"$seen"
check <<'OUT'
Management Class: 0x06
DEV_MGT - Device Management MAD (Dissector Not Implemented)
Invariant CRC
Management Class: 0x05
BM - Baseboard Management MAD (Dissector Not Implemented)
Invariant CRC
Management Class: 0x08
SNMP - SNMP Tunneling MAD (Dissector Not Implemented)
Invariant CRC
Management Class: 0x21
APP - Application Specific MAD (Dissector Not Implemented)
Management Class: 0x10
APP - Application Specific MAD (Dissector Not Implemented)
Management Class: 0x0a
VENDOR - Vendor Specific Management MAD (Dissector Not Implemented)
OUT
echo ok
