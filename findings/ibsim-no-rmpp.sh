#!/usr/bin/env bash
# Package: ibsim-utils 0.12, infiniband-diags 56.1, opensm 3.3.23 (Debian 13).
# Guess:   saquery prints whole tables on a simulated fabric as on a real one: two NodeRecords for the two channel adapters and the switch's.
# Seen:    The simulator stands where the kernel's MAD layer reassembles RMPP, and it does not: every table ends with its first MAD of 200 bytes.
#          saquery reports success, and shows one of three NodeRecords (112 bytes each), while LinkRecords (8 bytes each) are complete.
# Matters: SA clients that are tested on ibsim see single-segment replies only; multi-segment RMPP needs another peer.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'saquery NR; echo "saquery NR: exit code $?"' 'saquery LR' 'iblinkinfo' <<<"$two_hosts" >"$tmp/out"
{
    grep 'exit code' "$tmp/out"
    echo "NodeRecords: $(grep -c 'NodeRecord dump' "$tmp/out")"
    echo "LinkRecords: $(grep -c 'LinkRecord dump' "$tmp/out")"
    echo "nodes that iblinkinfo finds: $(grep -cE '^(CA|Switch): ' "$tmp/out")"
} >"$seen"
check <<'OUT'
saquery NR: exit code 0
NodeRecords: 1
LinkRecords: 4
nodes that iblinkinfo finds: 3
OUT
echo ok
