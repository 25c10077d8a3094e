#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim-utils 0.12, with infiniband-diags 56.1.
# Guess:   OpenSM that does not know a new link speed takes the highest one that it knows: two hosts on 4X NDR links have a path of 200 Gb/s (rate 17),
#          as on HDR links.
# Seen:    Paths are right up to 4X HDR. On 4X NDR the rate is 7, 40 Gb/s, less than on EDR and a tenth of the link: the extended speed is passed over
#          as a whole, and what LinkSpeedActive says beside it, at most QDR, counts. In the dump of the subnet the speed is "??".
# Matters: A sender that holds back to its path's static rate is slow on NDR under this OpenSM, without an error anywhere; compare rate and link.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for link in 4xQDR 4xEDR 2xHDR 4xHDR 2xNDR 4xNDR; do
    echo "$link:"
    fabric '-D 0x43' 'iblinkinfo -l' 'saquery PR --src-to-dst 1:3' 'cat /var/log/opensm-subnet.lst' <<NET |
Switch	4 "S1"
[1]	"H1"[1]		# "H1" lid 1 $link
[2]	"H2"[1]		# "H2" lid 3 $link

Ca	1 "H1"
[1]	"S1"[1]		# lid 1 lmc 0 "S1" lid 2 $link

Ca	1 "H2"
[1]	"S1"[2]		# lid 3 lmc 0 "S1" lid 2 $link
NET
        grep -oE '==\([^A]*Gbps|rate\..*|SPD=.*' | sed -E 's/^==\( *//; s/\.{4,}/: /; s/ +/ /' | sort -u
    rm "$tmp/share/ibsim.in"
done >"$seen"
check <<'OUT'
4xQDR:
4X 10.0 Gbps
SPD=10
rate: 0x87
4xEDR:
4X 25.78125 Gbps
SPD=25
rate: 0x90
2xHDR:
2X 53.125 Gbps
SPD=50
rate: 0x90
4xHDR:
4X 53.125 Gbps
SPD=50
rate: 0x91
2xNDR:
2X 106.25 Gbps
SPD=??
rate: 0x86
4xNDR:
4X 106.25 Gbps
SPD=??
rate: 0x87
OUT
echo ok
