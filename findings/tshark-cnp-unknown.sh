#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark names BTH opcode 0x81 a congestion notification packet (CNP) and shows FECN and BECN as bits of the BTH.
# Seen:    The opcode is "Unknown"; the 16 reserved bytes of the CNP and its invariant CRC are one vendor-specific field together, so the
#          ICRC field is absent. FECN (0x80) and BECN (0x40) are the value of infiniband.reserved, a field for all reserved bytes of many headers.
# Matters: Display filters for CNPs need infiniband.bth.opcode == 0x81; packets with FECN or BECN are found by the byte's place only.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce cnp.pcap <<'HEX'
81 00 ffff 40 000011 00000000 *28              # a CNP with BECN set
07 00 ffff 80 000011 00000100 41424344         # RDMA WRITE Middle with FECN set
HEX
dissect cnp.pcap -V | grep -E 'Opcode|Reserved: |Unknown/Vendor|Invariant' | sed 's/^ *//' >"$seen"
check <<'OUT'
Opcode: Unknown (129)
Reserved: 40
Unknown/Vendor Specific Data: 0000000000000000000000000000000099edc726
Opcode: Reliable Connection (RC) - RDMA WRITE Middle (7)
Reserved: 80
Invariant CRC: 0xae009acb
OUT
echo ok
