#!/usr/bin/env bash
# Package: ibsim-utils 0.12, with infiniband-diags 56.1 and opensm 3.3.23 (Debian 13).
# Guess:   ibstat on a simulated host says the rate of its link as on a real one: 400 for 4X NDR, 200 for 4X HDR, 100 for 2X HDR, and that the link layer is
#          InfiniBand.
# Seen:    EDR, HDR and NDR have one rate, 104 for 4X of all three. A link of the width 2X has rate 0. The link layer is "IB", a word that
#          no kernel writes. The port's own PortInfo, which smpquery asks for at the same time, has the right width and speed.
# Matters: What reads the sysfs files of a simulated host (rate, link_layer) sees values that no adapter has; links of current speeds are to be read by MADs.
source "$(dirname "$0")/lib.sh"
debs trixie ibsim-utils=0.12-1 infiniband-diags=56.1-1 opensm=3.3.23-3.1 bash coreutils grep
for link in 4xSDR 4xQDR 4xFDR10 4xFDR 4xEDR 2xHDR 4xHDR 4xNDR; do
    rm -rf "$tmp/share"
    # A network in the form of ibnetdiscover's output, in whose comments ibsim finds width and speed.
    fabric '' 'ibstat | grep -E "Rate|Link layer"' 'smpquery portinfo -D 0 1 | grep -E "LinkWidthActive|LinkSpeed(Ext)?Active:"' <<NET | tr -d '\t\n' | sed -E 's/\.{3,}/ /g; s/^/'"$link"': /; s/(Link|Rate)/  \1/g'
Switch 4 "S1"
[1]	"H1"[1]		# "H1" lid 1 $link
[2]	"H2"[1]		# "H2" lid 3 $link

Hca 1 "H1"
[1]	"S1"[1]		# "S1" lid 2 $link

Hca 1 "H2"
[1]	"S1"[2]		# "S1" lid 2 $link
NET
    echo
done >"$seen"
check <<'OUT'
4xSDR:   Rate: 10  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 2.5 Gbps  LinkSpeedExtActive: No Extended Speed
4xQDR:   Rate: 40  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: No Extended Speed
4xFDR10:   Rate: 40  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: No Extended Speed
4xFDR:   Rate: 56  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: 14.0625 Gbps
4xEDR:   Rate: 104  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: 25.78125 Gbps
2xHDR:   Rate: 0  Link layer: IB  LinkWidthActive: 2X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: 53.125 Gbps
4xHDR:   Rate: 104  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: 53.125 Gbps
4xNDR:   Rate: 104  Link layer: IB  LinkWidthActive: 4X  LinkSpeedActive: 10.0 Gbps  LinkSpeedExtActive: 106.25 Gbps
OUT
echo ok
