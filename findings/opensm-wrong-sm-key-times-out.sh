#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   An SA query with a wrong SM_Key is answered as an untrusted one, with less in it, or with an error status.
# Seen:    It gets no answer at all: the client times out, as if there were no SA, and only OpenSM's log knows. Without a key (0) and with OpenSM's own default
#          (1) the same query is answered.
# Matters: SA queries of ours have key 0. A timeout of a trusted query does not prove that the SA is out of reach; ask again with key 0.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'for key in 0 1 5; do saquery --smkey $key NR >records 2>errors; echo "key $key: exit code $?, lines $(wc -l <records)"; tail -n 1 errors; done' <<<"$two_hosts" >"$seen"
grep -oE 'ERR .*' "$tmp/share/osm.log" >>"$seen"
check <<'OUT'
key 0: exit code 0, lines 16
key 1: exit code 0, lines 16
key 5: exit code 110, lines 0
Query SA failed: Connection timed out
ERR 1A04: Non-Zero MAD SM_Key: 0x5 != SM_Key: 0x1; SA MAD ignored for method 0x12 attribute 0x11 (NodeRecord)
OUT
echo ok
