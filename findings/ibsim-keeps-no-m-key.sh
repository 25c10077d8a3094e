#!/usr/bin/env bash
# Package: ibsim-utils 0.12, opensm 3.3.23, infiniband-diags 56.1 (Debian 13).
# Guess:   A simulated port keeps the M_Key, its lease and its protection level that a Set(PortInfo) gives it, as it keeps the width: from OpenSM's m_key
#          options and from ibportstate's mkey, mkeylease and mkeyprot alike. Without the key a query then fails.
# Seen:    After either, the port has M_Key 0, protection 0 and a lease of 4089 seconds, which nobody set, while a width in the same Set is kept. OpenSM
#          notes key 0 for all ports in its file of keys, without an error in its log; ibportstate ends with 0.
# Matters: M_Keys, their protection levels and traps for violations cannot be tried on ibsim, and a clean run with m_key set is no test of them.
source "$(dirname "$0")/lib.sh"
debs trixie ibsim-utils=0.12-1 opensm=3.3.23-3.1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share" "$root/var/cache/opensm"
printf '%s\n' 'm_key 0x1122' 'm_key_lease_period 60' 'm_key_protection_level 2' >"$tmp/share/opensm.conf"
fabric '-F opensm.conf' 'smpquery -K portinfo 3 1' 'cat /var/cache/opensm/guid2mkey osm.log' \
    'ibportstate 3 1 mkey 0x1122 mkeylease 60 mkeyprot 1 width 3 >/dev/null; echo "ibportstate: exit code $?"' 'smpquery -K portinfo 3 1' \
    <<<"$two_hosts" >"$tmp/out"
grep -E '^(Mkey|MkeyLeasePeriod|ProtectBits|LinkWidthEnabled):|^0x|ERR|exit code' "$tmp/out" >"$seen"
check <<'OUT'
Mkey:............................0x0000000000000000
MkeyLeasePeriod:.................4089
LinkWidthEnabled:................4X
ProtectBits:.....................0
0x0000000000100003 0x0000000000000000
0x0000000000200000 0x0000000000000000
0x0000000000100001 0x0000000000000000
ibportstate: exit code 0
Mkey:............................0x0000000000000000
MkeyLeasePeriod:.................4089
LinkWidthEnabled:................1X or 4X
ProtectBits:.....................0
OUT
echo ok
