#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   sl=5 of a partition in partitions.conf is the service level of its IPoIB group and of the paths between its members, in every
#          configuration; if OpenSM does not follow the file, its log says so.
# Seen:    Without "qos TRUE", which is not the default, the group and the paths have SL 0. The log has a line about it at the debug level (-D 0x08)
#          only. With it both have SL 5.
# Matters: A lossless class that is chosen by partition is not there on a fabric with OpenSM's defaults, while rate, mtu and P_Key of the same line are.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share"
echo 'Default=0x7fff, ipoib, sl=5 : ALL=full;' >"$tmp/share/partitions.conf"
# shellcheck disable=SC2016 # expanded inside fabric
overriding='while read -r line; do [[ $line != *Overriding* ]] || echo "log: ${line##*] }"; done <osm.log'
for options in '' 'qos TRUE' '-D 0x0b'; do
    rm -f "$tmp/share"/{ibsim.in,osm.log}
    printf 'force_log_flush TRUE\n%s\n' "${options#-D*}" >"$tmp/share/opensm.conf"
    echo "options: ${options:-none}"
    fabric "-F opensm.conf -P partitions.conf ${options#qos*}" 'saquery -g' 'saquery --src-to-dst 1:3' "$overriding" <<<"$two_hosts" |
        grep -E 'dump:|MGID|SL\.|sl\.|^log' | sed -E 's/^[[:space:]]*//'
done >"$seen"
check <<'OUT'
options: none
MCMemberRecord group dump:
MGID....................ff12:401b:ffff::ffff:ffff
SL......................0x0
PathRecord dump:
sl......................0x0
options: qos TRUE
MCMemberRecord group dump:
MGID....................ff12:401b:ffff::ffff:ffff
SL......................0x5
PathRecord dump:
sl......................0x5
options: -D 0x0b
MCMemberRecord group dump:
MGID....................ff12:401b:ffff::ffff:ffff
SL......................0x0
PathRecord dump:
sl......................0x0
log: 0x08 -> partition_create: Overriding SL 5 to default SL 0 on partition Default as QoS is not enabled.
OUT
echo ok
