#!/usr/bin/env bash
# Package: ibsim-utils 0.12 (Debian 13), with opensm 3.3.23 and infiniband-diags 56.1.
# Guess:   A port that ibportstate disables is Down and Disabled, and the port at the other end of the cable Down and Polling, as on a fabric of hardware; enabled
#          again, both ends train to LinkUp and OpenSM makes them Active.
# Seen:    The port is Active and Disabled, two states that exclude each other, and its other end stays Active and LinkUp, though packets do not pass.
#          Enabled again, the port stays Active and Polling; nothing brings it to LinkUp.
# Matters: Tests of a link that goes down and up need another peer than ibsim.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
show="for end in '1 S1 3' '1,4 S2 3'; do set -- \$end; smpquery -D portinfo 0,\$1 \$3 | while IFS=:. read -r name rest; do case \$name in LinkState|PhysLinkState) echo \"\$2: \$name \${rest##*.}\";; esac; done; done"
fabric '' 'echo before' "$show" 'ibportstate -D 0,1 3 disable >log 2>&1; echo "disable: exit code $?"; sleep 4' "$show" 'ibportstate -D 0,1 3 enable >log 2>&1; echo "enable: exit code $?"; sleep 14' "$show" <<'NET' >"$seen"
Switch 4 "S1"
[1]	"H1"[1]
[2]	"H2"[1]
[3]	"S2"[3]
[4]	"S2"[4]

Switch 4 "S2"
[3]	"S1"[3]
[4]	"S1"[4]

Hca 1 "H1"
[1]	"S1"[1]

Hca 1 "H2"
[1]	"S1"[2]
NET
check <<'OUT'
before
S1: LinkState Active
S1: PhysLinkState LinkUp
S2: LinkState Active
S2: PhysLinkState LinkUp
disable: exit code 0
S1: LinkState Active
S1: PhysLinkState Disabled
S2: LinkState Active
S2: PhysLinkState LinkUp
enable: exit code 0
S1: LinkState Active
S1: PhysLinkState Polling
S2: LinkState Active
S2: PhysLinkState LinkUp
OUT
echo ok
