#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   A qos_sl2vl with less than 16 numbers leaves the default (SL n to VL n) to the other levels, with a line in the log.
# Seen:    The levels that are not listed go to VL 0, and nothing is said on the terminal or in the log. The same happens to a level whose number is missing between
#          two commas or is no number. Numbers beyond the sixteenth are dropped as silently.
# Matters: With a short list, traffic of the upper service levels shares the lane of SL 0 although QoS is on. Read the tables from the ports.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for table in '' '1,2,3' '1, 2, 3' '1,,3' '1,2,x,4' '0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,5,5'; do
    rm -rf "$tmp/share" && mkdir -p "$tmp/share"
    printf 'qos TRUE\n%s\n' "${table:+qos_sl2vl $table}" >"$tmp/share/conf"
    fabric '-F conf' 'smpquery sl2vl 1 1' <<<"$two_hosts" >"$tmp/out"
    echo "${table:-default}: $(grep -oP 'out  0: \|\K.*' "$tmp/out" | tr -d ' |' | cut -c1-16)"
    grep -hE 'ERR|nvalid|rror' "$tmp/share"/osm.{out,log} || true
done >"$seen"
check <<'OUT'
default: 0123456701234567
1,2,3: 1230000000000000
1, 2, 3: 1230000000000000
1,,3: 1030000000000000
1,2,x,4: 1200400000000000
0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,5,5: 0123456701234567
OUT
echo ok
