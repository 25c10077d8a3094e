#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   A partition with P_Key 0x0000, which is no valid key, is refused with a line in the log, or gives the ports the key 0x0000 or 0x8000.
# Seen:    OpenSM takes 0 as "choose one" and gives the partition the key 0x0001, which full members get as 0x8001. No line of the log names the
#          key or the partition. A key written with its membership bit, 0x8005, is taken as 5.
# Matters: The key of such a partition is known from the ports' tables only: give each partition a key.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for partition in 'Zero=0x0000' 'High=0x8005'; do
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    echo 'force_log_flush TRUE' >"$tmp/share/opensm.conf"
    printf '%s\n' 'Default=0x7fff, ipoib : ALL=full;' "$partition : ALL=full;" >"$tmp/share/partitions.conf"
    echo "$partition"
    fabric "-F opensm.conf -P partitions.conf" 'smpquery pkeys 3' 'cat osm.log' <<<"$two_hosts" |
        grep -iE '^ +0: |zero|high|p_?key|partition|err ' | sed -E 's/^ *//; s/^.*\] 0x/0x/'
done >"$seen"
check <<'OUT'
Zero=0x0000
0: 0xffff 0x8001 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
64 pkeys capacity for this port
High=0x8005
0: 0xffff 0x8005 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
64 pkeys capacity for this port
OUT
echo ok
