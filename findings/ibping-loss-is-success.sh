#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   ibping ends like ping: 0 if an answer came, 1 if all packets were lost; smpquery to the same LID fails, so ibping does too.
# Seen:    "100% packet loss" and exit code 0, for a LID that no port has and for a port whose ibping server does not run; smpquery ends with 255.
# Matters: A script that checks a path with "ibping && ..." always goes on: read the statistics.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'ibping -c 1 -L 99; echo "ibping to no port: exit code $?"' 'ibping -c 1 -L 1; echo "ibping to a port without server: exit code $?"' \
    'smpquery nodeinfo 99; echo "smpquery to no port: exit code $?"' <<<"$two_hosts" | grep -E 'packets transmitted|exit code' | sed 's/, time.*//' >"$seen"
check <<'OUT'
1 packets transmitted, 0 received, 100% packet loss
ibping to no port: exit code 0
1 packets transmitted, 0 received, 100% packet loss
ibping to a port without server: exit code 0
smpquery to no port: exit code 255
OUT
echo ok
