#!/usr/bin/env bash
# Package: ibsim-utils 0.12, opensm 3.3.23, infiniband-diags 56.1 (Debian 13).
# Guess:   ibsim takes a topology that ibnetdiscover saved, but width and speed of the links, which are in its comments, are lost: links are 4X SDR
#          unless the file says w= and s=, and speeds after EDR do not exist in a simulator of that age.
# Seen:    Comments are read: "# "H2" lid 3 2xHDR" makes the link 2X HDR, and it is 4X SDR when the comment is taken off. The five widths
#          and the speeds up to NDR are there; XDR is refused with a line in its log and leaves 4X SDR. FDR10 is shown as QDR.
# Matters: Recorded fabrics are simulated with their real links, so path rates and reports of current speeds can be tried without hardware.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
# A network in the form of ibnetdiscover's output; the comment at each end of H2's link is $1.
saved() {
    local there='' back=''
    [ -z "$1" ] || there="# \"H2\" lid 3 $1" back="# lid 3 lmc 0 \"S1\" lid 2 $1"
    cat <<NET
Switch	4 "S-0000000000200000"		# "S1" base port 0 lid 2 lmc 0
[1]	"H-0000000000100000"[1](100001) 		# "H1" lid 1 4xEDR
[2]	"H-0000000000100002"[1](100003) 		$there

Ca	1 "H-0000000000100000"		# "H1"
[1](100001) 	"S-0000000000200000"[1]		# lid 1 lmc 0 "S1" lid 2 4xEDR

Ca	1 "H-0000000000100002"		# "H2"
[1](100003) 	"S-0000000000200000"[2]		$back
NET
}
for link in '' 1xSDR 4xFDR10 4xFDR 8xEDR 2xHDR 12xNDR 4xXDR; do
    echo "${link:-no comment}: $(fabric '' 'ibnetdiscover -p' 'cat ibsim.log' < <(saved "$link") | sed -nE "s/^CA .* 0x\w+003 (\S+ \S+) - .*/\1/p; s/.*(cannot parse speed).*/, \1/p" | sort -ru | tr -d '\n')"
    rm "$tmp/share/ibsim.in"
done >"$seen"
check <<'OUT'
no comment: 4x SDR
1xSDR: 1x SDR
4xFDR10: 4x QDR
4xFDR: 4x FDR
8xEDR: 8x EDR
2xHDR: 2x HDR
12xNDR: 12x NDR
4xXDR: 4x SDR, cannot parse speed
OUT
echo ok
