#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   ibportstate LID PORT width 3 changes LinkWidthEnabled of that port; the rest of PortInfo is sent back as it was read.
# Seen:    Where LID and SM LID are 0, as on each external port of a switch, it writes 0x1234 (4660) into both, without an option that says so. The
#          simulator keeps them, so the port shows "Lid: 4660" from then on. Ports that have a LID keep it.
# Matters: LID 4660 in a Set(PortInfo) for, or in the record of, a switch's external port was given by no subnet manager: it is left by ibportstate.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils
fields='Lid|SMLid|LinkWidthEnabled'
fabric '' 'smpquery portinfo 2 2' 'ibportstate 2 2 width 3 >/dev/null; echo "ibportstate 2 2 width 3: exit code $?"' 'smpquery portinfo 2 2' \
    'smpquery portinfo 3 1' 'ibportstate 3 1 width 3 >/dev/null; echo "ibportstate 3 1 width 3: exit code $?"' 'smpquery portinfo 3 1' <<<"$two_hosts" |
    grep -E "^# Port|^($fields):|exit code" >"$seen"
check <<'OUT'
# Port info: Lid 2 port 2
Lid:.............................0
SMLid:...........................0
LinkWidthEnabled:................4X
ibportstate 2 2 width 3: exit code 0
# Port info: Lid 2 port 2
Lid:.............................4660
SMLid:...........................4660
LinkWidthEnabled:................1X or 4X
# Port info: Lid 3 port 1
Lid:.............................3
SMLid:...........................1
LinkWidthEnabled:................4X
ibportstate 3 1 width 3: exit code 0
# Port info: Lid 3 port 1
Lid:.............................3
SMLid:...........................1
LinkWidthEnabled:................1X or 4X
OUT
echo ok
