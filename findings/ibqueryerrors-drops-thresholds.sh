#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   A line of ibqueryerrors' threshold file may have blanks around "=", a name that is no counter's gets a warning, and so does one after -s.
# Seen:    A line counts only as "Name=number" from its first column, in upper and lower case as the counter is written. Blanks before or after the name
#          and unknown names drop the line, and -s takes any name, all without a word. A threshold file that is not there shows as "## (null)".
# Matters: The counter is then reported from 1 on, or not suppressed; compare "Thresholds" and "Suppressed" at the end of the output with the file.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils grep
mkdir -p "$tmp/share"
lines=('SymbolErrorCounter=10' 'SymbolErrorCounter =10' ' SymbolErrorCounter=10' 'symbolerrorcounter=10' 'SymbolErrors=10')
commands=('echo "PerformanceSet \"H2\"[1] PortCounters.SymbolErrorCounter=5" >ibsim.in; sleep 1')
report='2>&1 | grep -E "Counter ==|^## (Thr|Sup|.null)"; echo "exit code ${PIPESTATUS[0]}"'
for index in "${!lines[@]}"; do
    echo "${lines[index]}" >"$tmp/share/$index"
    commands+=("echo '${lines[index]}:'; ibqueryerrors --threshold-file $index $report")
done
commands+=("echo 'no such file:'; ibqueryerrors --threshold-file nowhere $report")
for name in SymbolErrorCounter symbolerrorcounter SymbolErrors; do commands+=("echo '-s $name:'; ibqueryerrors -s $name $report"); done
fabric '' "${commands[@]}" <<<"$two_hosts" >"$seen"
check <<'OUT'
SymbolErrorCounter=10:
## Thresholds: [SymbolErrorCounter = 10]
## Suppressed:
exit code 0
SymbolErrorCounter =10:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
 SymbolErrorCounter=10:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
symbolerrorcounter=10:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
SymbolErrors=10:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
no such file:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## (null)
## Suppressed:
exit code 1
-s SymbolErrorCounter:
## Thresholds: 
## Suppressed: SymbolErrorCounter
exit code 0
-s symbolerrorcounter:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
-s SymbolErrors:
   GUID 0x100003 port 1: [SymbolErrorCounter == 5]
## Thresholds: 
## Suppressed:
exit code 1
OUT
echo ok
