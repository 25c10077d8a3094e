#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   A service level above 15 in a QoS policy file is an error of that file: OpenSM logs it and ignores the policy, as it does with a rule that
#          names a level which is not defined.
# Seen:    The file is taken without a word in the log or on the terminal. Of 99 and 259 the low four bits count: paths have SL 3. With 16, 17 or 31 there
#          is no path at all: the SA finds no record for any two ports, not even a port's own, and the log does not say why at its level for errors.
# Matters: One wrong digit turns every resolution of a route on the fabric into "no record", where nothing points at the QoS policy.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
policy() { printf 'qos-levels\n  qos-level\n    name: DEFAULT\n    sl: %s\n  end-qos-level\nend-qos-levels\n%s\n' "$1" "${2:-}"; }
rule=$'qos-match-rules\n  qos-match-rule\n    qos-level-name: gold\n    service-id: 1\n  end-qos-match-rule\nend-qos-match-rules'
try() {
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    cat >"$tmp/share/policy"
    fabric '-Q -Y policy' 'saquery PR --src-to-dst 1:3' 'saquery PR --src-to-dst 3:1' 'saquery PR --src-to-dst 3:3' 'cat osm.log osm.out' <<<"$two_hosts" >"$tmp/out"
    echo "$1: records $(grep -c PathRecord "$tmp/out"), SL $(grep -oP '\ssl\.+\K\w+' "$tmp/out" | sort -u | paste -sd' ')"
    grep -oE 'ERR .*|^Err.*|[Ww]arning.*' "$tmp/out" || true
}
{
    try 'level not defined' < <(policy 3 "$rule")
    for level in 3 15 16 17 31 99 259; do try "sl: $level" < <(policy "$level"); done
} >"$seen"
check <<'OUT'
level not defined: records 3, SL 0x0
ERR AC11: qos-match-rule num 1: qos-level 'gold' not found
ERR AC04: Error(s) in QoS policy file (policy)
Error(s) in QoS policy file (policy)
sl: 3: records 3, SL 0x3
sl: 15: records 3, SL 0xF
sl: 16: records 0, SL 
sl: 17: records 0, SL 
sl: 31: records 0, SL 
sl: 99: records 3, SL 0x3
sl: 259: records 3, SL 0x3
OUT
echo ok
