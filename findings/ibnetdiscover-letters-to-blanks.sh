#!/usr/bin/env bash
# Package: infiniband-diags 56.1 (Debian 13), with opensm 3.3.23, on ibsim 0.12.
# Guess:   A node's name with letters beyond ASCII, which is UTF-8 in the architecture, is printed as it was set by all of the diagnostics.
# Seen:    Each byte of such a letter is printed as a blank, by ibnetdiscover, iblinkinfo, smpquery, saquery and ibtracert: two switches, "Sé1" and "Sè1", are both
#          "S  1", though the node descriptions on the wire differ (smpdump shows their bytes).
# Matters: Names from these tools do not tell such nodes apart, and are not the names that were set; match nodes by GUID.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'for port in 1 1,3; do smpdump -D 0,$port 0x10 >dump; read -r line <dump; echo "0,$port: $line"; done' 'ibnetdiscover' 'iblinkinfo' 'smpquery -D nodedesc 0,1' 'smpquery -D nodedesc 0,1,3' \
    'saquery NR 2' 'ibtracert 1 3' <<'NET' | grep -aoE '^0,1.*|"S[^"0-9H-]*1"|^Switch: 0x[0-9a-f]+ S.*:|Node ?Desc.*' | sort | uniq -c | sed 's/^ *//' >"$seen"
Switch 4 "Sé1"
[1]	"H1"[1]
[2]	"H2"[1]
[3]	"Sè1"[3]

Switch 4 "Sè1"
[3]	"Sé1"[3]

Hca 1 "H1"
[1]	"Sé1"[1]

Hca 1 "H2"
[1]	"Sé1"[2]
NET
check <<'OUT'
13 "S  1"
1 0,1,3: 53c3 a831 0000 0000 0000 0000 0000 0000
1 0,1: 53c3 a931 0000 0000 0000 0000 0000 0000
2 Node Description:............................S  1
1 NodeDescription.........S  1
1 Switch: 0x0000000000200000 S  1:
1 Switch: 0x0000000000200001 S  1:
OUT
echo ok
