#!/usr/bin/env bash
# Package: prometheus-node-exporter 1.9.0 (Debian 13), on a made-up /sys with a RoCE port.
# Guess:   The infiniband collector exports every counter of the port in /sys, counters/ and hw_counters/ alike, so out_of_sequence and the ECN and CNP
#          counters too, and labels the port with its link layer.
# Seen:    Nothing of hw_counters is exported, and there is no link layer: a RoCE port looks like an InfiniBand one. Of counters/, data counters are
#          multiplied by 4 and named bytes; the rate is in bytes a second.
# Matters: Congestion and loss on RoCE do not show on a dashboard that is fed by this collector only.
source "$(dirname "$0")/lib.sh"
debs trixie prometheus-node-exporter=1.9.0-1+b4
port=$tmp/sys/class/infiniband/mlx5_0/ports/1
mkdir -p "$port"/{counters,hw_counters}
put() { echo "$2" >"$port/$1"; }
put ../../fw_ver 28.43.1014
put ../../hca_type MT4129
put ../../board_id MT_0000000838
put state '4: ACTIVE'
put phys_state '5: LinkUp'
put rate '400 Gb/sec (4X NDR)'
put link_layer Ethernet
put counters/port_xmit_data 1000
put counters/port_xmit_wait 1000
for counter in out_of_sequence packet_seq_err np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled rnr_nak_retry_err; do
    put "hw_counters/$counter" 7
done
"$root/usr/bin/prometheus-node-exporter" --path.sysfs="$tmp/sys" --collector.disable-defaults --collector.infiniband \
    --web.listen-address=127.0.0.1:0 >"$tmp/exporter.log" 2>&1 &
exporter=$!
trap 'kill $exporter; rm -rf "$tmp"' EXIT
for _ in $(seq 50); do
    address=$(grep -om1 'address=127.0.0.1:[0-9]*' "$tmp/exporter.log" | sed -n '1s/address=//p') || true
    [ -z "$address" ] || break
    sleep 0.2
done
python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(f"http://{sys.argv[1]}/metrics").read().decode())' "$address" >"$tmp/metrics"
{
    grep '^node_infiniband' "$tmp/metrics"
    echo "lines with a hardware counter or link layer: $(grep -cE 'cnp|ecn|sequence|seq_err|rnr|link_layer|Ethernet' "$tmp/metrics" || true)"
} >"$seen"
check <<'OUT'
node_infiniband_info{board_id="MT_0000000838",device="mlx5_0",firmware_version="28.43.1014",hca_type="MT4129"} 1
node_infiniband_physical_state_id{device="mlx5_0",port="1"} 5
node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1"} 4000
node_infiniband_port_transmit_wait_total{device="mlx5_0",port="1"} 1000
node_infiniband_rate_bytes_per_second{device="mlx5_0",port="1"} 5e+10
node_infiniband_state_id{device="mlx5_0",port="1"} 4
lines with a hardware counter or link layer: 0
OUT
echo ok
