#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   With allow_both_pkeys a port that is both a full and a limited member has the full key at the lower index, so that the first entry which fits
#          to a partition is the better one; path records name the full key.
# Seen:    The limited key comes first: 0x0002 at index 1, 0x8002 at index 2. Path records do name the full key, and the limited one if it is asked for.
#          Only the default partition has its full key first, at index 0. Without the option "both" counts as full.
# Matters: Two ports that take the first entry of a partition are limited members and cannot hear each other, though the subnet manager has made both
#          full ones. Linux looks for a full key first (ib_find_cached_pkey).
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
try() {
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    printf '%s\n' "Default=0x7fff: ALL=$2;" 'P2=0x0002: ALL=both;' >"$tmp/share/partitions"
    echo "Default $2, P2 both; options: ${1:-none}"
    fabric "-P partitions $1" 'for lid in 1 3; do smpquery pkeys $lid | head -n 1; done' 'saquery PR --src-to-dst 1:3 --pkey 0x8002' \
        'saquery PR --src-to-dst 1:3 --pkey 0x0002' 'cat osm.log' <<<"$two_hosts" | grep -E '^ *0:|pkey\.|ERR' | sed -E 's/^\s+//; s/\.{4,}/ of the path /'
}
{
    try '' full
    try --allow_both_pkeys full
    try --allow_both_pkeys both
} >"$seen"
check <<'OUT'
Default full, P2 both; options: none
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
pkey of the path 0x8002
pkey of the path 0x2
Default full, P2 both; options: --allow_both_pkeys
0: 0xffff 0x0002 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000
0: 0xffff 0x0002 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000
pkey of the path 0x8002
pkey of the path 0x2
Default both, P2 both; options: --allow_both_pkeys
0: 0xffff 0x0002 0x8002 0x7fff 0x0000 0x0000 0x0000 0x0000
0: 0xffff 0x0002 0x8002 0x7fff 0x0000 0x0000 0x0000 0x0000
pkey of the path 0x8002
pkey of the path 0x2
OUT
echo ok
