#!/usr/bin/env bash
# Package: opensm 3.3.23, on ibsim-utils 0.12 (Debian 13).
# Guess:   portstatus of OpenSM's console counts each active port by its width and its speed, 2X and NDR included, and lists a 1X port of a link whose
#          ends can do more as a possible issue.
# Seen:    A port with the width 2X, half of a split HDR or NDR cage, is counted under no width, without a word. The ports at 4X NDR have an "unknown
#          speed" and are the only issue; the link at 1X SDR, whose ends support 12X, is none. A switch's port 0 is no port here.
# Matters: The widths add up to less than the active ports on a fabric with split cables; a check of widths reads the ports' reports (ibnetdiscover -p).
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils grep
mkdir -p "$tmp/share"
cat >"$tmp/share/console" <<'SH'
until grep -q "Entering MASTER" console.log 2>/dev/null; do sleep 0.5; done
sleep 2
echo portstatus
sleep 1
SH
# The comments say width and speed of the links of H1 (2X HDR), H2 (4X NDR) and H3 (1X SDR).
fabric -o 'bash console | SIM_HOST=H2 timeout 15 opensm -q local -p 9 -f console.log || true' <<'NET' | sed -nE '/port status/,/exiting/{s/^(OpenSM \$ )+//; s/ in [0-9]+ us//; /port status|exiting|MADs out|^$/!p}' >"$seen"
Switch 4 "S1"
[1]	"H1"[1]		# "H1" lid 1 2xHDR
[2]	"H2"[1]		# "H2" lid 3 4xNDR
[3]	"H3"[1]		# "H3" lid 4 1xSDR

Hca 1 "H1"
[1]	"S1"[1]		# "S1" lid 2 2xHDR

Hca 1 "H2"
[1]	"S1"[2]		# "S1" lid 2 4xNDR

Hca 1 "H3"
[1]	"S1"[3]		# "S1" lid 2 1xSDR
NET
check <<'OUT'
   7 port(s) scanned on 4 nodes
   1 down
   6 active
   2 at 1X
   2 at 4X
   2 at 2.5 Gbps
   2 at 53.125 Gbps
Possible issues:
   2 with unknown speed
      0x0000000000100002 1 (H2)
      0x0000000000200000 2 (S1)
OUT
echo ok
