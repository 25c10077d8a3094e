#!/usr/bin/env bash
# Package: infiniband-diags 56.1 (Debian 13), on ibsim 0.12.
# Guess:   smpdump prints the attribute, and a status only if the answer has one.
# Seen:    The status is the whole 16-bit field, in which a directed-route answer has the direction bit at the top: each such answer, a good one as well, ends with "SMP
#          status: 0x8000". A LID-routed one has no such line. The exit code is 0 whatever the status is.
# Matters: Mask the status of directed-route SMPs to 15 bits.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'echo directed; smpdump -D 0 0x15 1; echo "exit code $?"' 'echo "by LID, no such port"; smpdump 2 0x15 99; echo "exit code $?"' 'echo by LID; smpdump 3 0x15 1; echo "exit code $?"' <<<"$two_hosts" |
    grep -E 'directed|LID|status|code' >"$seen"
check <<'OUT'
directed
SMP status: 0x8000
exit code 0
by LID, no such port
SMP status: 0x1c
exit code 0
by LID
exit code 0
OUT
echo ok
