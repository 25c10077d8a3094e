#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   With max_op_vls 2 and QoS on, OpenSM folds all tables from service levels to lanes, the hosts' and the switches', into VL 0 and VL 1.
# Seen:    The first sweep folds the hosts' tables only. A switch whose ports have two operational lanes is given tables into VL 0 to 7. They are folded
#          by the next sweep, ten seconds later by default; without periodic sweeps (-s 0) they stay until something else causes one, as SIGHUP does.
# Matters: Until then a packet of SL 2 leaves its host on VL 0 and is sent on to a lane that its next link has not. A test of service levels right
#          after the start of a subnet manager may see losses that a later one does not.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share"
echo 'max_op_vls 2' >"$tmp/share/conf"
tables='smpquery portinfo 2 1; smpquery sl2vl 3; smpquery sl2vl 2 1'
fabric '-F conf -Q -s 0' "$tables" 'echo 12 seconds later:; sleep 12' "$tables" \
    'for process in /proc/[0-9]*; do [ "$(cat $process/comm)" != opensm ] || kill -HUP ${process#/proc/}; done; echo after SIGHUP:; sleep 4' \
    "$tables" <<<"$two_hosts" | grep -E 'OperVLs|out  0|in  2, out  1|:$' >"$seen"
check <<'OUT'
OperVLs:.........................VL0-1
ports: in  0, out  0: | 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1|
ports: in  2, out  1: | 0| 1| 2| 3| 4| 5| 6| 7| 0| 1| 2| 3| 4| 5| 6| 7|
12 seconds later:
OperVLs:.........................VL0-1
ports: in  0, out  0: | 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1|
ports: in  2, out  1: | 0| 1| 2| 3| 4| 5| 6| 7| 0| 1| 2| 3| 4| 5| 6| 7|
after SIGHUP:
OperVLs:.........................VL0-1
ports: in  0, out  0: | 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1|
ports: in  2, out  1: | 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1| 0| 1|
OUT
echo ok
