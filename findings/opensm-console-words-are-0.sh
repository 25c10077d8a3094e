#!/usr/bin/env bash
# Package: opensm 3.3.23, on ibsim-utils 0.12, with infiniband-diags 56.1 (Debian 13).
# Guess:   OpenSM's console refuses a priority or a level of its log that is no number, as it refuses a priority of 16, and leaves the old one.
# Seen:    A word is the number 0, with the answer of success: "priority high" makes the master's priority 0, the lowest, and "loglevel verbose" switches its
#          log off, errors included. Of "5.7" the 5 counts. The time of the performance manager's sweeps, in the same console, is refused if it is a word.
# Matters: After a mistyped priority another subnet manager may take the subnet over at its next sweep; ask the console again, without a value.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils grep
mkdir -p "$tmp/share"
cat >"$tmp/share/console" <<'SH'
until grep -q "Entering MASTER" console.log 2>/dev/null; do sleep 0.5; done
sleep 2
for command in 'priority 16' 'priority' 'priority 5.7' 'priority high' 'priority' 'loglevel 999' 'loglevel verbose' 'loglevel' 'perfmgr sweep_time often'; do
    echo "$command"
    sleep 0.5
done
sminfo >sminfo
SH
fabric -o 'bash console | SIM_HOST=H2 timeout 15 opensm -q local -p 9 -f console.log' 'cat sminfo' <<<"$two_hosts" |
    grep -oE '(Current|Setting|Invalid|sweep_time) .*|priority [0-9]+ state.*' >"$seen"
check <<'OUT'
Invalid sm-priority 16; must be between 0 and 15
Current sm-priority is 9
Setting sm-priority to 5
Setting sm-priority to 0
Current sm-priority is 0
Invalid log level 0x3e7
Setting log level to 0x0
Current log level is 0x0
sweep_time requires a positive time period (in seconds) to be specified
priority 0 state 3 SMINFO_MASTER
OUT
echo ok
