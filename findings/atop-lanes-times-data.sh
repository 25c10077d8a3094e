#!/usr/bin/env bash
# Package: atop 2.11.1 (Debian 13), on a made-up /sys/class/infiniband.
# Guess:   port_rcv_data counts words of 4 bytes whatever the link's width is, so ports with the same counters have the same throughput; a rate of "2.5 Gb/sec" is
#          2500 Mb/s; and the field of atop -P that its manual calls "number of bytes received" is in bytes.
# Seen:    atop multiplies the words by the number of lanes in the file rate. Of the same million words in 4 seconds a 4X port has 8000 Kbps, a 1X port (25 Gb/s
#          Ethernet is "1X EDR") a quarter of it and an 8X port twice as much. A rate with a point is read up to the point: a 1X SDR port has no lanes, 2 Mb/s, and never
#          any throughput. The "bytes" of atop -P are the words.
# Matters: The throughput is right for 4X only: on Ethernet of 25 Gb/s compare counters as words of 4 bytes.
source "$(dirname "$0")/lib.sh"
debs trixie atop=2.11.1-3
mkdir -p "$root/sys/fs/cgroup" "$root/run" "$root/var/log/atop"
words() { for port in "$root"/sys/class/infiniband/*/ports/1/counters; do for way in rcv xmit; do echo "$1" >"$port/port_${way}_data"; done; done; }
while read -r name rate; do
    port=$root/sys/class/infiniband/$name/ports/1
    mkdir -p "$port/counters"
    echo "$rate" >"$port/rate"
    echo "4: ACTIVE" >"$port/state"
    echo 1000 | tee "$port/counters/port_rcv_packets" >"$port/counters/port_xmit_packets"
done <<'RATES'
mlx5_0 2.5 Gb/sec (1X SDR)
mlx5_1 25 Gb/sec (1X EDR)
mlx5_2 100 Gb/sec (4X EDR)
mlx5_3 1600 Gb/sec (8X XDR)
RATES
words 0
{ sleep 2 && words 1000000; } &
# Both programs end with their second sample, 4 seconds after the first one.
{ sleep 2 && words 1000000; } &
run atop 4 2 >"$tmp/screen" &
run atop -P IFB 4 2 >"$tmp/fields"
wait
{
    echo "name, port, lanes, Mb/s, received and sent of atop -P:"
    awk '$1 == "IFB" && ++lines > 4 {print $7, $8, $9, $10, $11, $12}' "$tmp/fields" | sort
    echo "the screen:"
    grep IFB "$tmp/screen" | tail -n 4 | sed -E 's/^IFB \| *//; s/ *[0-9]+% \| pck.*\| si/ in/; s/\| so/ out/; s/ *\|$//; s/ +/ /g' | sort
} >"$seen"
check <<'OUT'
name, port, lanes, Mb/s, received and sent of atop -P:
mlx5_0 1 0 2 1000000 1000000
mlx5_1 1 1 25000 1000000 1000000
mlx5_2 1 4 100000 1000000 1000000
mlx5_3 1 8 1600000 1000000 1000000
the screen:
lx5_0/1 in 0 Kbps out 0 Kbps
lx5_1/1 in 2000 Kbps out 2000 Kbps
lx5_2/1 in 8000 Kbps out 8000 Kbps
lx5_3/1 in 16 Mbps out 16 Mbps
OUT
echo ok
