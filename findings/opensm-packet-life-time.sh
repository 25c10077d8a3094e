#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   OpenSM's option packet_life_time is PacketLifeTime of the path records that it answers with.
# Seen:    Path records take it from subnet_timeout: packet_life_time 16 leaves 0x92 (selector 2, 18), subnet_timeout 15 makes it 0x8f.
#          packet_life_time is the switches' LifeTimeValue, the time after which they drop a packet, and is not checked (65 becomes 1, while
#          sm_priority 77 and lmc 9 are replaced by their defaults with a line each).
# Matters: A CM's timeouts follow PacketLifeTime (twice, and the ACK delay); who wants them shorter must set subnet_timeout.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for options in 'packet_life_time 16' 'subnet_timeout 15' 'packet_life_time 65' 'sm_priority 77' 'lmc 9'; do
    rm -rf "$tmp/share"
    mkdir -p "$tmp/share"
    echo "$options" >"$tmp/share/opensm.conf"
    echo "$options:"
    fabric '-F opensm.conf' 'cat osm.out' 'saquery --src-to-dst 1:3' 'smpquery switchinfo 2' <<<"$two_hosts" |
        grep -E 'Invalid Cached|pkt_life|^LifeTime' | sed 's/^\s*//' || true
done >"$seen"
check <<'OUT'
packet_life_time 16:
pkt_life................0x92
LifeTime:........................16
subnet_timeout 15:
pkt_life................0x8F
LifeTime:........................18
packet_life_time 65:
pkt_life................0x92
LifeTime:........................1
sm_priority 77:
Invalid Cached Option Value:sm_priority = 77:Using Default:0
pkt_life................0x92
LifeTime:........................18
lmc 9:
Invalid Cached Option Value:lmc = 9:Using Default:0
pkt_life................0x92
LifeTime:........................18
OUT
echo ok
