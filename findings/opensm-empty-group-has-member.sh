#!/usr/bin/env bash
# Package: opensm 3.3.23, on ibsim-utils 0.12, with infiniband-diags 56.1 (Debian 13).
# Guess:   A multicast group that no port has joined, as that of IPoIB right after the start of OpenSM, is in the SA's list of groups and not in that of
#          members; a query for its members finds no record.
# Seen:    saquery -m has a member of each such group: PortGid :: with no bit of the join state (0x20 is the scope), on a node that is unknown.
# Matters: The number of MCMemberRecords is not the number of members; a client has to pass over records with a GID or a join state of zero.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share"
printf '%s\n' 'Default=0x7fff,ipoib: ALL=full;' 'Storage=0x0002,ipoib: ALL=full;' >"$tmp/share/partitions"
fabric '-P partitions' 'echo groups:' 'saquery -g' 'echo members:' 'saquery -m' <<<"$two_hosts" | sed 's/^\s*//' >"$seen"
check <<'OUT'
groups:
MCMemberRecord group dump:
MGID....................ff12:401b:8002::ffff:ffff
Mlid....................0xC001
Mtu.....................0x84
pkey....................0x8002
Rate....................0x83
SL......................0x0
MCMemberRecord group dump:
MGID....................ff12:401b:ffff::ffff:ffff
Mlid....................0xC000
Mtu.....................0x84
pkey....................0xFFFF
Rate....................0x83
SL......................0x0
members:
MCMemberRecord member dump:
MGID....................ff12:401b:8002::ffff:ffff
Mlid....................0xC001
PortGid.................::
ScopeState..............0x20
ProxyJoin...............0x0
NodeDescription.........<unknown>
MCMemberRecord member dump:
MGID....................ff12:401b:ffff::ffff:ffff
Mlid....................0xC000
PortGid.................::
ScopeState..............0x20
ProxyJoin...............0x0
NodeDescription.........<unknown>
OUT
echo ok
