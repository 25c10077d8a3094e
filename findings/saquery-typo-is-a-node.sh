#!/usr/bin/env bash
# Package: infiniband-diags 56.1, opensm 3.3.23 (Debian 13), on ibsim-utils 0.12.
# Guess:   saquery refuses a query name that it does not know, as PathRecords for PathRecord, and lists those that it knows; it refuses a number that is no attribute
#          of the SA as well.
# Seen:    A name that is no query is looked for as that of a node: "Machine is not on the network", with exit code 64. The number of no attribute, 0x99, is sent
#          without a word about the answer, and the exit code is 0. Upper and lower case do not count.
# Matters: A typing mistake looks like a host that is off; the names that there are stand in the help.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 opensm=3.3.23-3.1 ibsim-utils=0.12-1 bash coreutils grep
fabric '' 'for query in PathRecords pathrecord 0x99; do echo "$query:"; saquery $query >out 2>&1; code=$?; head -n 1 out; echo "exit code $code"; done' <<<"$two_hosts" >"$seen"
check <<'OUT'
PathRecords:
Failed to find lid for "PathRecords": Machine is not on the network
exit code 64
pathrecord:
PathRecord dump:
exit code 0
0x99:
exit code 0
OUT
echo ok
