#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   Asked for a path with P_Key 0x7fff between two full members, OpenSM answers with 0xffff, the key that both ports have, or with no record.
#          A service level that the subnet does not use, and a traffic class that the path has not, leave no record either.
# Seen:    The record has P_Key 0x7fff, which is in neither port's table. Any service level is granted while QoS is off, 15 too. A traffic class, a hop
#          limit and a flow label that are asked for are no condition: the record has zeros.
# Matters: A client that looks for the record's key, all 16 bits, in its port's table does not find it; compare the lower 15 bits.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
ask() { printf 'echo "%s:"; saquery PR --src-to-dst 1:3 %s' "$1" "$1"; }
fabric '' 'echo tables; for lid in 1 3; do smpquery pkeys $lid | head -n 1; done' \
    "$(ask '--pkey 0xffff')" "$(ask '--pkey 0x7fff')" "$(ask '--pkey 0x8001')" "$(ask '--sl 15')" "$(ask '--tclass 9')" "$(ask '--hop_limit 9')" \
    "$(ask '--flow_label 9')" <<<"$two_hosts" | grep -E '^ *0:|^--|pkey\.|\ssl\.|tclass\.|hop_flow' |
    sed -E 's/\.{4,}/ /; s/^\s+//' | sed -E ':a; N; s/\n(hop|tclass|pkey|sl)/; \1/; ta; P; D' >"$seen"
check <<'OUT'
0: 0xffff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
0: 0xffff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
--pkey 0xffff:; hop_flow_raw 0x0; tclass 0x0; pkey 0xFFFF; sl 0x0
--pkey 0x7fff:; hop_flow_raw 0x0; tclass 0x0; pkey 0x7FFF; sl 0x0
--pkey 0x8001:
--sl 15:; hop_flow_raw 0x0; tclass 0x0; pkey 0xFFFF; sl 0xF
--tclass 9:; hop_flow_raw 0x0; tclass 0x0; pkey 0xFFFF; sl 0x0
--hop_limit 9:; hop_flow_raw 0x0; tclass 0x0; pkey 0xFFFF; sl 0x0
--flow_label 9:; hop_flow_raw 0x0; tclass 0x0; pkey 0xFFFF; sl 0x0
OUT
echo ok
