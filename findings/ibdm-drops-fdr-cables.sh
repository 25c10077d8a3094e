#!/usr/bin/env bash
# Package: ibutils 1.5.7 (Debian 13).
# Guess:   A topology file of ibutils may say FDR (14G) and EDR (25G) for a cable, and what it does not know is an error at that line.
# Seen:    SDR, DDR and QDR (2.5G, 5G, 10G) are known, nothing else. A line with another speed is ignored with a warning, so the cable, and a host that
#          hangs on it alone, are not in the fabric: a path to it ends at the switch, and the exit code is 0. In OpenSM's dump "SPD=14" and "SPD=25"
#          are read as a speed "UNKNOWN".
# Matters: These programs check the plan of a current fabric without most of its cables; count the nodes that they say they have defined.
source "$(dirname "$0")/lib.sh"
debs trixie ibutils=1.5.7+0.2.gbd7e502-3
mkdir -p "$tmp/share"
for speed in 5G 10G 14G 25G; do
    echo "$speed:"
    printf 'MTS3600 S1\n   P1 -> Cheetah H1 P1\n   P2 -4x-%s-> Cheetah H2 P1\n' "$speed" >"$tmp/share/plan.topo"
    run ibdmtr -t /tmp/plan.topo -s H1/U1 -p 1 -d 0,1,2 | grep -E '^-W|Defined|\[  2\]|TO '
    echo "exit code ${PIPESTATUS[0]}"
done >"$seen"
cat >"$tmp/share/read.tcl" <<'TCL'
set fabric [new_IBFabric]
IBFabric_parseSubnetLinks $fabric /tmp/subnet.lst
foreach guid {1 2} {puts "port $guid: [IBPort_width_get [IBFabric_getPortByGuid $fabric 0x000000000000000$guid]] [IBPort_speed_get [IBFabric_getPortByGuid $fabric 0x000000000000000$guid]]"}
exit
TCL
end() { printf '{ CA Ports:01 SystemGUID:000000000000001%s NodeGUID:000000000000001%s PortGUID:000000000000000%s VenID:00000000 DevID:0000 Rev:000000A1 {H%s} LID:000%s PN:01 } ' "$1" "$1" "$1" "$1" "$1"; }
for speed in 10 14 25; do
    printf '%s%sPHY=4x LOG=ACT SPD=%s\n' "$(end 1)" "$(end 2)" $speed "$(end 2)" "$(end 1)" $speed >"$tmp/share/subnet.lst"
    echo "SPD=$speed: $(run ibdmsh /tmp/read.tcl | grep -o 'port 1.*')"
done >>"$seen"
check <<'OUT'
5G:
-I- Defined 3/3 systems/nodes 
      TO   Host:S1 Plug:P1
[  2] FROM Host:S1 Plug:P2
      TO   Host:H2 Plug:P1
exit code 0
10G:
-I- Defined 3/3 systems/nodes 
      TO   Host:S1 Plug:P1
[  2] FROM Host:S1 Plug:P2
      TO   Host:H2 Plug:P1
exit code 0
14G:
-W- Ignoring '   P2 -4x-14G-> Cheetah H2 P1' (line:3)
-I- Defined 2/2 systems/nodes 
      TO   Host:S1 Plug:P1
[  2] FROM Host:S1 Plug:P2
exit code 0
25G:
-W- Ignoring '   P2 -4x-25G-> Cheetah H2 P1' (line:3)
-I- Defined 2/2 systems/nodes 
      TO   Host:S1 Plug:P1
[  2] FROM Host:S1 Plug:P2
exit code 0
SPD=10: port 1: 4x 10
SPD=14: port 1: 4x UNKNOWN
SPD=25: port 1: 4x UNKNOWN
OUT
echo ok
