#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   Two lines of partitions.conf with the same P_Key (the full bit does not count) are one partition, in which a port that either line makes
#          a full member is one: full membership is the stronger right.
# Seen:    They are one partition, and each line overwrites what an earlier one said of a port: full, then limited gives 0x0001 to both ports, and
#          ALL=full, then one port limited gives 0x0001 to that one. The log has no line about it.
# Matters: A port's P_Key table may lose a full membership by a line added for others; two limited members then cannot talk to each other.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for lines in 'A=0x0001 : ALL=full;|B=0x8001 : ALL=limited;' 'B=0x8001 : ALL=limited;|A=0x0001 : ALL=full;' 'A=0x0001 : ALL=full;|B=0x0001 : 0x100003=limited;'; do
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    tr '|' '\n' <<<"Default=0x7fff : ALL=full;|$lines" >"$tmp/share/partitions.conf"
    echo 'force_log_flush TRUE' >"$tmp/share/opensm.conf"
    echo "$lines"
    fabric '-F opensm.conf -P partitions.conf' 'smpquery pkeys 1' 'smpquery pkeys 3' 'cat osm.log' <<<"$two_hosts" |
        grep -E '^ +0: |PARSE|ERR ' | sed -E 's/^ *0: (0x....) (0x....) .*/\1 \2/'
done >"$seen"
check <<'OUT'
A=0x0001 : ALL=full;|B=0x8001 : ALL=limited;
0xffff 0x0001
0xffff 0x0001
B=0x8001 : ALL=limited;|A=0x0001 : ALL=full;
0xffff 0x8001
0xffff 0x8001
A=0x0001 : ALL=full;|B=0x0001 : 0x100003=limited;
0xffff 0x8001
0xffff 0x0001
OUT
echo ok
