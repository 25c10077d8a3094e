#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   The routing engine dfsssp gives a second service level only to paths that would close a cycle, as lash does: between two hosts on one switch,
#          where no cycle can be, both path records have SL 0, and a restart changes nothing.
# Seen:    Each path has one of the service levels 0 to 7, for the ports' eight lanes, and another one after each restart: 1 to H2 and 6 back, then 3 and
#          1, then 2 and 3. QoS is off, and the log has no line about it.
# Matters: A connection's answers go by the SL of its REQ, which is not the SL that the SA gives for the way back; what asks before and after a restart
#          uses two lanes. A service level that is written down for a test is good for one start.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for engine in minhop lash dfsssp; do
    for _ in 1 2 3 4; do
        rm -rf "$tmp/share"
        fabric "-R $engine" 'saquery PR --src-to-dst 1:3' 'saquery PR --src-to-dst 3:1' 'cat osm.log' <<<"$two_hosts" >"$tmp/out"
        grep -oP '\ssl\.+\K0x\w' "$tmp/out" | paste -sd' ' >>"$tmp/$engine"
        grep -E 'ERR|QoS' "$tmp/out" >>"$tmp/remarks" || true
    done
    echo "$engine: different pairs of levels in four starts: $(sort -u "$tmp/$engine" | wc -l | sed 's/^[2-4]$/more than one/'), highest level $(
        tr ' ' '\n' <"$tmp/$engine" | sort | sed -n '$s/0x[1-7]/up to 7/p; $p' | sed -n 1p)"
done >"$seen"
echo "errors and remarks on QoS in the logs: $(wc -l <"$tmp/remarks")" >>"$seen"
check <<'OUT'
minhop: different pairs of levels in four starts: 1, highest level 0x0
lash: different pairs of levels in four starts: 1, highest level 0x0
dfsssp: different pairs of levels in four starts: more than one, highest level up to 7
errors and remarks on QoS in the logs: 0
OUT
echo ok
