#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   A number in OpenSM's files that does not fit into its field, a P_Key of 17 bits, a service level of 17 or a lane's weight of 300, is refused with
#          a line in the log, as a malformed line of the partition file is.
# Seen:    The P_Key 0x12345 becomes 0x2345, sl=17 and scope=99 become 0 and link-local, all without a word. The weight 300 becomes 44, with a warning on
#          the terminal but not in the log. mtu=9 leaves the partition without its group, and the log says "not realizable" without a partition's name.
# Matters: A mistyped key puts ports into a partition that may belong to others; compare the ports' tables with the file.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils sed
try() {
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    printf '%s\n' 'Default=0x7fff: ALL=full;' "$1" >"$tmp/share/partitions"
    echo "$2" >"$tmp/share/conf"
    echo "$1 $2"
    fabric '-F conf -P partitions -Q' 'smpquery pkeys 1 | head -n 1' 'saquery -g' "$3" 'cat osm.log; sed "s/^/terminal: /" osm.out' <<<"$two_hosts" |
        grep -E '^ *0:|MGID|SL\.|WEIGHT|ERR (1B|AC|7)|PARSE|terminal: +Warn' | sed -E 's/^\s+//; s/\.{4,}/ /; s/.*-> //' | uniq
}
{
    try 'P2=0x12345: ALL=full;' '' ''
    try 'P2=0x0002, ipoib, sl=17, scope=99: ALL=full;' '' ''
    try 'P2=0x0002, ipoib, mtu=9: ALL=full;' '' ''
    try 'P2=0x0002 ALL=full;' '' ''
    try 'P2=0x0002: ALL=full;' 'qos_vlarb_high 0:300,1:4' 'smpquery vlarb 3'
} >"$seen"
check <<'OUT'
P2=0x12345: ALL=full; 
0: 0xffff 0xa345 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
P2=0x0002, ipoib, sl=17, scope=99: ALL=full; 
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
MGID ff12:401b:8002::ffff:ffff
SL 0x0
P2=0x0002, ipoib, mtu=9: ALL=full; 
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
mcmr_rcv_create_new_mgrp: ERR 1B26: Requested MGRP parameters are not realizable
P2=0x0002 ALL=full; 
0: 0xffff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
MGID ff12:401b:ffff::ffff:ffff
SL 0x0
parse_part_conf: PARSE ERROR: line 2: no partition definition found
terminal: PARSE ERROR: line 2: no partition definition found
P2=0x0002: ALL=full; qos_vlarb_high 0:300,1:4
0: 0xffff 0x8002 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
WEIGHT: |0x0 |0x4 |0x4 |0x4 |0x4 |0x4 |0x4 |0x4 |
WEIGHT: |0x2C|0x4 |0x0 |0x0 |0x0 |0x0 |0x0 |0x0 |
terminal:  Warning: Cached Option qos_vlarb_high:weight=300 out of range
OUT
echo ok
