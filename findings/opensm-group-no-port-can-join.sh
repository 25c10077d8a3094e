#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   A partition's IPoIB group is made with an MTU and a rate that its ports have; a file that asks for more is cut down or refused.
# Seen:    On a fabric of 4X SDR ports with MTU 2048 (rate 3) the group for mtu=5, rate=7 is created with MTU 4096 and 40 Gb/s. mtu=9 in
#          another partition is "not realizable": that group is absent, its partition and the rest of the file stay in force.
# Matters: A group's record from the SA may have an MTU above the port's; the join then fails, and the port's own MTU is no bound of it.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$tmp/share"
cat >"$tmp/share/partitions.conf" <<'CONF'
Default=0x7fff, ipoib : ALL=full;
Large=0x0001, ipoib, rate=7, mtu=5 : ALL=full;
None=0x0003, ipoib, mtu=9 : ALL=full;
CONF
fabric '-P partitions.conf' 'smpquery portinfo 3' 'smpquery pkeys 3' 'saquery -g' 'cat osm.log' <<<"$two_hosts" |
    grep -E '  0: |MtuCap|LinkWidthActive|LinkSpeedActive|MGID|Mtu\.|Rate\.|realiz|Failed' | sed -E 's/^\s*//; s/^.*\] 0x/0x/' >"$seen"
check <<'OUT'
LinkWidthActive:.................4X
LinkSpeedActive:.................2.5 Gbps
MtuCap:..........................2048
0: 0xffff 0x8001 0x8003 0x0000 0x0000 0x0000 0x0000 0x0000
MGID....................ff12:401b:8001::ffff:ffff
Mtu.....................0x85
Rate....................0x87
MGID....................ff12:401b:ffff::ffff:ffff
Mtu.....................0x84
Rate....................0x83
0x01 -> mcmr_rcv_create_new_mgrp: ERR 1B26: Requested MGRP parameters are not realizable
0x01 -> osm_prtn_add_mcgroup: Failed to create MC group (ff12:401b:8003::ffff:ffff) with pkey 0x8003
OUT
echo ok
