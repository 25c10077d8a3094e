#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   A faulty entry of the partition file costs its own partition: those before and after it are made, and the Default line of the file holds. A
#          semicolon on a line of its own ends a partition of several lines.
# Seen:    One entry that is no port GUID leaves no partition but the default one, the good lines before it included. That partition is OpenSM's own, not
#          the file's: all ports are full members, where the file has ALL=limited. A semicolon on its own line after a GUID's is such a fault.
#          OpenSM starts, with one "PARSE ERROR" in its log.
# Matters: One mistyped GUID takes the isolation away from all hosts, and their partitions' P_Keys leave the tables; look for PARSE ERROR after a change.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
keys() {
    mkdir -p "$tmp/share"
    rm -f "$tmp/share/ibsim.in"
    printf '%s\n' 'Default=0x7fff, ipoib: ALL=limited, SELF=full;' 'P1=0x1: ALL=full;' "$1" >"$tmp/share/partitions"
    echo "$1"
    fabric '-P partitions' 'smpquery pkeys 3 | head -n 1' 'cat osm.log; rm osm.log' <<<"$two_hosts" | grep -oE '^ *0: .*|PARSE.*' | sed -E 's/^\s+//; s/( 0x0000)+$//'
}
{
    keys 'P2=0x2: 0x100003=full, 0x100001=full;'
    keys 'P2=0x2: 0x100003=full, H1=full;'
    keys $'P2=0x2:\n    0x100003=full,\n    0x100001=full;'
    keys $'P2=0x2:\n    0x100003=full,\n    0x100001=full\n;'
} >"$seen"
check <<'OUT'
P2=0x2: 0x100003=full, 0x100001=full;
0: 0x7fff 0x8001 0x8002
P2=0x2: 0x100003=full, H1=full;
0: 0xffff
PARSE ERROR: line 3: bad PortGUID
P2=0x2:
    0x100003=full,
    0x100001=full;
0: 0x7fff 0x8001 0x8002
P2=0x2:
    0x100003=full,
    0x100001=full
;
0: 0xffff
PARSE ERROR: line 6: no partition definition found
OUT
echo ok
