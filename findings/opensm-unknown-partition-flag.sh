#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   An unknown flag in partitions.conf is a parse error: OpenSM says so and falls back to the default partition, which is what it does for
#          a partition without P_Key.
# Seen:    "bogusflag=1" is passed over: the partition exists and its members have the P_Key. The log at its default level has no line about it,
#          a warning stands at the verbose level (-D 0x07) only.
# Matters: A misspelt ipoib, rate or mtu in partitions.conf gives a partition without multicast group, and no error that anybody sees.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for options in '' '-D 0x07'; do
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    echo 'force_log_flush TRUE' >"$tmp/share/opensm.conf"
    printf '%s\n' 'Default=0x7fff, ipoib : ALL=full;' 'Storage=0x0002, bogusflag=1 : ALL=full;' >"$tmp/share/partitions.conf"
    echo "opensm -P partitions.conf $options"
    fabric "-F opensm.conf -P partitions.conf $options" 'smpquery pkeys 3' 'cat osm.log' <<<"$two_hosts" |
        grep -E '^ +0: |bogusflag|PARSE|in error' | sed -E 's/^ *//; s/^.*\] 0x/0x/'
done >"$seen"
check <<'OUT'
opensm -P partitions.conf 
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
opensm -P partitions.conf -D 0x07
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
0x04 -> partition_add_flag: PARSE WARN: line 2: unrecognized partition flag 'bogusflag' - ignored
OUT
echo ok
