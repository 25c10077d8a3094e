#!/usr/bin/env bash
# Package: ucx-utils 1.18.1 (Debian 13).
# Guess:   UCX reads a bandwidth of 100Gbps as 12500 MB/s, the decimal unit that link rates have, and 1.5GBps as 1500 MB/s.
# Seen:    Prefixes are powers of 1024 for bits as for bytes: 100Gbps becomes 12800.00MBps, 2.4% more. Lower-case prefixes ("100gbps") and a
#          number without "ps", "/s" or "s" are refused.
# Matters: Bandwidths that UCX prints or is told (UCX_*_BW) are MiB/s; set beside ours in Gb/s they need the factor 1.048576.
source "$(dirname "$0")/lib.sh"
debs trixie ucx-utils=1.18.1+ds-2+b1 coreutils
for value in 100Gbps 100Gb/s 1000MBps 1.5GBps 100gbps 1000MB; do
    echo "UCX_CMA_BW=$value: $(run env UCX_CMA_BW=$value ucx_info -c 2>&1 | grep -oE 'UCX_CMA_BW=.*|Invalid value for BW: [^.]*' || true)"
done >"$seen"
check <<'OUT'
UCX_CMA_BW=100Gbps: UCX_CMA_BW=12800.00MBps
UCX_CMA_BW=100Gb/s: UCX_CMA_BW=12800.00MBps
UCX_CMA_BW=1000MBps: UCX_CMA_BW=1000.00MBps
UCX_CMA_BW=1.5GBps: UCX_CMA_BW=1536.00MBps
UCX_CMA_BW=100gbps: Invalid value for BW: '100gbps'
UCX_CMA_BW=1000MB: Invalid value for BW: '1000MB'
OUT
echo ok
