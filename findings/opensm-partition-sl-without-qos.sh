#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   sl=3 of a partition is the SL of its IPoIB group's MCMemberRecord and of its path records.
# Seen:    Both say SL 0, and OpenSM logs nothing about it at its default level. With -Q (QoS on) both say SL 3.
# Matters: The SL that an RDMA CM takes from the SA is 0 unless the subnet manager runs with QoS, whatever its partition file says.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for options in '' '-Q'; do
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    echo 'Default=0x7fff, ipoib, sl=3 : ALL=full;' >"$tmp/share/partitions.conf"
    echo "opensm -P partitions.conf $options"
    fabric "-P partitions.conf $options" 'saquery -g' 'saquery --src-to-dst 1:3' 'cat osm.log' <<<"$two_hosts" |
        grep -E '^\s+(MGID|SL|sl|dgid)\.|(QoS|sl[ =]).*(ignor|disab)' | sed 's/^\s*//'
done >"$seen"
check <<'OUT'
opensm -P partitions.conf 
MGID....................ff12:401b:ffff::ffff:ffff
SL......................0x0
dgid....................fe80::10:3
sl......................0x0
opensm -P partitions.conf -Q
MGID....................ff12:401b:ffff::ffff:ffff
SL......................0x3
dgid....................fe80::10:3
sl......................0x3
OUT
echo ok
