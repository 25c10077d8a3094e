#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   PortCounters of performance management are dissected to the end of the attribute: QP1Dropped before VL15Dropped, PortXmitWait last.
# Seen:    QP1Dropped (9 in the packet) and PortXmitWait (55) have no field; the list ends with PortRcvPkts.
# Matters: The two counters that tell congestion and dropped GSI packets, our reason to read the attribute, have to be read from the bytes.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib counters.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 04 01 81 0000 0000 0000000000000077 0012 0000 00000000 *84 00 01 ffff 0007 01 02 0003 0004 0005 0006 07 08 00 12 0009 000a 00000457 000008ae 00000021 0000002c 00000037 *276
HEX
dissect counters.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V | sed -n '/^ *Port Counters/,/Invariant/p' | sed 's/^ *//' >"$seen"
check <<'OUT'
Port Counters (Performance Management MAD)
Reserved: 00000000000000000000000000000000000000000000000000000000000000000000000000000000
Reserved: 00
PortSelect: 0x01
CounterSelect: 0xffff
SymbolErrorCounter: 7
LinkErrorRecoveryCounter: 1
LinkDownedCounter: 2
PortRcvErrors: 3
PortRcvRemotePhysicalErrors: 4
PortRcvSwitchRelayErrors: 5
PortXmitDiscards: 6
PortXmitConstraintErrors: 7
PortRcvConstraintErrors: 8
Reserved: 00
0001 .... = LocalLinkIntegrityErrors: 1
.... 0010 = ExcessiveBufferOverrunErrors: 2
Reserved: 0009
VL15Dropped: 10
PortXmitData: 1111
PortRcvData: 2222
PortXmitPkts: 33
PortRcvPkts: 44

OUT
echo ok
