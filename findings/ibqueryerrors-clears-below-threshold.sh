#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   ibqueryerrors -k, which clears error counters after it has read them, clears those of the ports that it reports as beyond the threshold.
# Seen:    It clears the error counters of every port it looks at. With a threshold of 10, a port with 8 symbol errors is not reported and has 0
#          afterwards. Data counters stay.
# Matters: A periodic ibqueryerrors -k never shows a link whose errors stay below the threshold in each period, however long that goes on.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils grep
mkdir -p "$tmp/share"
echo 'SymbolErrorCounter=10' >"$tmp/share/thresholds"
count='for port in "2 1" "2 2" "3 1"; do echo "port $port: $(perfquery $port | grep -oP "SymbolErrorCounter:\.+\K\d+")"; done'
errors() { echo "echo 'PerformanceSet \"S1\"[1] PortCounters.SymbolErrorCounter=8' >ibsim.in; echo 'PerformanceSet \"H2\"[1] PortCounters.SymbolErrorCounter=12' >ibsim.in; sleep 1"; }
fabric '' "$(errors)" "$count" 'echo ibqueryerrors -k:; ibqueryerrors -k --threshold-file thresholds 2>&1 | grep -E "Counter ==|ports checked"' "$count" \
    'echo "data of port 3 1: $(perfquery 3 1 | grep -cP "PortXmitData:\.+[1-9]\d{3}")"' <<<"$two_hosts" >"$seen"
check <<'OUT'
port 2 1: 8
port 2 2: 0
port 3 1: 12
ibqueryerrors -k:
   GUID 0x100003 port 1: [SymbolErrorCounter == 12]
##          6 ports checked, 1 ports have errors beyond threshold
port 2 1: 0
port 2 2: 0
port 3 1: 0
data of port 3 1: 1
OUT
echo ok
