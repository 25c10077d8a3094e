#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   With -R file -U TABLES, OpenSM takes the saved forwarding tables and routes the LIDs that they do not have by its default algorithm, as it does
#          when a routing engine fails.
# Seen:    A LID without a line is routed nowhere: "Dead end path" in the log once a path to it is asked for, nothing before. A line that
#          sends a LID to an unconnected port is taken as well.
# Matters: A host that comes after the tables were dumped is discovered and has a LID, but neither the SA's replies nor a CM request reach it.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils grep
tables() {
    mkdir -p "$tmp/share"
    rm -f "$tmp/share/ibsim.in" "$tmp/share/osm.log"
    { echo 'Unicast lids [0x0-0x3] of switch Lid 2 guid 0x0000000000200000 (S1):'; printf '%s 00%s :\n' 0x0001 1 "$@"; } >"$tmp/share/tables"
    echo "lines: $(grep ^0x "$tmp/share/tables" | paste -sd,)"
    fabric '-R file -U tables' 'echo "own $(smpquery -D portinfo 0 | grep ^Lid:)"' 'ibroute -D 0,1 2>/dev/null | grep -o "^0x.* :"' \
        'echo "path records: $(saquery PR --src-to-dst 1:3 2>/dev/null | grep -c PathRecord)"' \
        'grep -oE "Dead end .*|find remote phys port.*" osm.log' <<<"$two_hosts" || true
}
{
    tables 0x0002 0 0x0003 2
    tables 0x0002 0
    tables 0x0002 0 0x0003 4
} >"$seen"
check <<'OUT'
lines: 0x0001 001 :,0x0002 000 :,0x0003 002 :
own Lid:.............................3
0x0001 001 :
0x0002 000 :
0x0003 002 :
path records: 1
lines: 0x0001 001 :,0x0002 000 :
own Lid:.............................3
0x0001 001 :
0x0002 000 :
path records: 0
Dead end path on switch S1 (GUID: 0x0000000000200000) to LID 3
lines: 0x0001 001 :,0x0002 000 :,0x0003 004 :
own Lid:.............................3
0x0001 001 :
0x0002 000 :
0x0003 004 :
path records: 0
find remote phys port of S1 (GUID: 0x0000000000200000) port 4 while routing from LID 1 to LID 3
OUT
echo ok
