#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13), with smpquery of infiniband-diags 56.1 on ibsim 0.12 for the fields that there are.
# Guess:   SwitchInfo is shown to its end, the highest entry of the multicast tables (MulticastFDBTop) included, as smpquery shows it.
# Seen:    The last field is EnhancedPortZero; the 16 bits of MulticastFDBTop after it, here 0xc005, are in no field.
# Matters: How many blocks of multicast tables a manager has to read is to be taken from the bytes 18 and 19 of the attribute.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1 opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
packets ib switch.pcap <<'HEX'
64 00 ffff 00 000000 00000001 00000000 00000000  01 01 01 81 0000 0000 0000000000001234 0012 0000 00000000 *84 *84 c000 0000 0400 0030 00 00 00 90 0000 0040 18 00 c005 *276
HEX
{
    dissect switch.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -V | sed -n '/LinearFDBCap/,/Invariant/p' | grep -oE '[A-Za-z]+: .*' | grep -v CRC
    echo "fields of multicast: $(run tshark -G fields 2>/dev/null | grep -oE 'infiniband\.switchinfo\.multicast\w+' | paste -sd' ')"
    fabric '' 'smpquery switchinfo 2' <<<"$two_hosts" | tail -n 2
} >"$seen"
check <<'OUT'
LinearFDBCap: 0xc000
RandomFDBCap: 0x0000
MulticastFDBCap: 0x0400
LinearFDBTop: 0x0030
DefaultPort: 0x00
DefaultMulticastPrimaryPort: 0x00
DefaultMulticastNotPrimaryPort: 0x00
LifeTimeValue: 0x12
PortStateChange: 0x0
OptimizedSLtoVLMappingProgramming: 0x0
LIDsPerPort: 0x0000
PartitionEnforcementCap: 0x0040
InboundEnforcementCap: 0x0
OutboundEnforcementCap: 0x0
FilterRawInboundCap: 0x0
FilterRawOutboundCap: 0x1
EnhancedPortZero: 0x1
fields of multicast: infiniband.switchinfo.multicastfdbcap
EnhancedPort0:...................0
MulticastFDBTop:.................0x0000
OUT
echo ok
