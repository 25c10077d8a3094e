#!/usr/bin/env bash
# Package: infiniband-diags 56.1, opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   A query for a path or node that does not exist prints the SA's status (0x0300, no records) and ends with an error.
# Seen:    saquery prints nothing and exits with 0: for a LID that no port has, for a GID outside the fabric, and for two ports that are both limited
#          members of their partition, between which no path exists. sminfo for a LID without a port exits with 255.
# Matters: Scripts must look for "PathRecord dump" in the output. Of an SA client of ours the status has to come through as an error.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share"
echo 'Default=0x7fff, ipoib : ALL;' >"$tmp/share/partitions.conf"
fabric '-P partitions.conf' 'smpquery pkeys 1' 'smpquery pkeys 3' \
    'echo "path 1 to 3:"; saquery --src-to-dst 1:3; echo "exit code $?"' \
    'echo "path 1 to 77:"; saquery --src-to-dst 1:77; echo "exit code $?"' \
    'echo "path to an unknown GID:"; saquery --sgid fe80::10:1 --dgid fe80::99 PR; echo "exit code $?"' \
    'echo "node 77:"; saquery NR 77; echo "exit code $?"' \
    'echo "sminfo 77:"; sminfo 77 >/dev/null 2>&1; echo "exit code $?"' <<<"$two_hosts" | grep -vE '^ +([1-9]|[0-9]{2}):|^64' >"$seen"
check <<'OUT'
   0: 0x7fff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
   0: 0x7fff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
path 1 to 3:
exit code 0
path 1 to 77:
exit code 0
path to an unknown GID:
exit code 0
node 77:
exit code 0
sminfo 77:
exit code 255
OUT
echo ok
