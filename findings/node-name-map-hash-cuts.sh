#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   In a node name map "#" begins a comment outside of quotes only, a name with a blank needs its quotes, a GUID that is there twice has its last
#          name or causes a warning, and ibnetdiscover prints the map's names wherever it prints a name.
# Seen:    "#" cuts a name within its quotes as well: "rack 7 #3" is "rack 7 ". Names with blanks need no quotes. Of two lines for a GUID the first counts,
#          without a word. ibnetdiscover takes the map's names for switches and for the far ends of links, not for a channel adapter's own line.
# Matters: Hosts have two names in one output, and names that differ after "#" only are the same; match nodes by their GUIDs.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils
mkdir -p "$tmp/share"
cat >"$tmp/share/map" <<'MAP'
0x100000 "rack 7 #3" # the first host
0x100002 rack 7 lower
0x200000 "spine"
0x200000 "leaf"
MAP
fabric '' 'ibnetdiscover --node-name-map map 2>&1' 'ibroute --node-name-map map 2 2>&1' <<<"$two_hosts" |
    grep -E '^(Switch|Ca|\[)|Adapter|portguid' | sed -E 's/\s+/ /g' >"$seen"
check <<'OUT'
Switch 4 "S-0000000000200000" # "spine" base port 0 lid 2 lmc 0
[1] "H-0000000000100000"[1](100001) # "rack 7 " lid 1 4xSDR
[2] "H-0000000000100002"[1](100003) # "rack 7 lower" lid 3 4xSDR
Ca 1 "H-0000000000100000" # "H1"
[1](100001) "S-0000000000200000"[1] # lid 1 lmc 0 "spine" lid 2 4xSDR
Ca 1 "H-0000000000100002" # "H2"
[1](100003) "S-0000000000200000"[2] # lid 3 lmc 0 "spine" lid 2 4xSDR
0x0001 001 : (Channel Adapter portguid 0x0000000000100001: 'rack 7 ')
0x0002 000 : (Switch portguid 0x0000000000200000: 'spine')
0x0003 002 : (Channel Adapter portguid 0x0000000000100003: 'rack 7 lower')
OUT
echo ok
