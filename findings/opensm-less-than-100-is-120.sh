#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   A path query with a rate and the selector "less than" is answered with the path's rate, or with the next lower one if the path is faster.
#          "Exactly" is granted for lower rates too, as it is for a lower MTU.
# Seen:    On 4X EDR links "less than 100 Gb/s" is answered with 120 Gb/s, and "greater than 120" with 100: OpenSM ranks 120 below 100, as it ranks 60
#          below 50 and 30 below 25, so that "less than 50" is 60, and "less than 60" is 40 although there are 50 and 56. "Exactly" is granted for the
#          path's own rate only, but for every lower MTU.
# Matters: A client that asks for less than its link's rate in order to leave room gets a static rate that never holds it back.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
rates='2.5:2 5:5 10:3 14:11 20:6 25:15 28:19 30:4 40:7 50:20 56:12 60:8 80:9 100:16 112:13 120:10 168:14 200:17 300:18'
# Rates are asked for by their codes, below the selector's two bits: 0 greater than, 1 less than, 2 exactly.
cat >"$tmp/ask" <<SH
for selector in 0 1 2; do
    for rate in $rates; do
        record=\$(saquery PR --src-to-dst 1:3 --rate \$((selector * 64 + \${rate#*:})))
        [[ \$record =~ rate\\.+0x([0-9A-F]+) ]] && echo "answer \$selector \${rate%:*} \$((0x\${BASH_REMATCH[1]} & 63))"
    done
done
for code in 1 2 3 4 5; do
    record=\$(saquery PR --src-to-dst 1:3 --mtu \$((2 * 64 + code)))
    [[ \$record =~ mtu\\.+0x8([0-9]) ]] && echo "answer mtu \$((128 << code)) \${BASH_REMATCH[1]}"
done
true
SH
fabric '' "$(cat "$tmp/ask")" <<'NET' >"$tmp/out"
Switch	4 "S1"
[1]	"H1"[1]		# "H1" lid 1 4xEDR
[2]	"H2"[1]		# "H2" lid 3 4xEDR

Ca	1 "H1"
[1]	"S1"[1]		# lid 1 lmc 0 "S1" lid 2 4xEDR

Ca	1 "H2"
[1]	"S1"[2]		# lid 3 lmc 0 "S1" lid 2 4xEDR
NET
python3 - "$tmp/out" $rates >"$seen" <<'PY'
import sys

rate = {int(pair.split(":")[1]): pair.split(":")[0] for pair in sys.argv[2:]}
answers = {"0": [], "1": [], "2": [], "mtu": []}
for line in open(sys.argv[1]):
    word, selector, asked, code = line.split()
    answers[selector].append(f"{asked}: {rate[int(code)] if selector != 'mtu' else 128 << int(code)}")
for selector, text in (("0", "greater than"), ("1", "less than"), ("2", "exactly"), ("mtu", "exactly the MTU")):
    print(f"{text}", ", ".join(answers[selector]))
PY
check <<'OUT'
greater than 2.5: 100, 5: 100, 10: 100, 14: 100, 20: 100, 25: 100, 28: 100, 30: 100, 40: 100, 50: 100, 56: 100, 60: 100, 80: 100, 120: 100
less than 5: 2.5, 10: 5, 14: 10, 20: 14, 25: 30, 28: 25, 30: 20, 40: 28, 50: 60, 56: 50, 60: 40, 80: 56, 100: 120, 112: 100, 120: 80, 168: 100, 200: 100, 300: 100
exactly 100: 100
exactly the MTU 256: 256, 512: 512, 1024: 1024, 2048: 2048
OUT
echo ok
