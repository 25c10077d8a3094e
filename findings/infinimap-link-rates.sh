#!/usr/bin/env bash
# Package: infinimap 0.1.0 (PyPI).
# Guess:   A map of an InfiniBand fabric gives 4X HDR, NDR and XDR links 200, 400 and 800 Gb/s, and names FDR10.
# Seen:    The usable rate is the signalling rate times 64/66 at all speeds from FDR on: 206.06, 412.12 and 824.24 Gb/s, more than the
#          links carry, since from HDR on the code is 256b/257b with RS(544,514) FEC (200.00 Gb/s of 212.5); EDR is right with 100. FDR10 (8 of
#          the active speed) is unknown. XDR is bit 16 of the extended speed, where libibmad 56.1 has none (see libibmad-xdr-second-field).
# Matters: Utilisation computed from such a rate is 3% low. Our rates are libibverbs' (HDR 4X: IBV_RATE_200_GBPS).
source "$(dirname "$0")/lib.sh"
wheels infinimap==0.1.0
python3 - >"$seen" <<'PY'
from infinimap.ibcore.decode import link_rate, speed_labels

for speed in ("SDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR"):
    rate = link_rate("4X", speed)
    print("4X", speed, "none" if rate is None else f"{rate:.2f} Gb/s")
print("speed mask 8 (FDR10):", speed_labels(8))
print("speed mask 0x1000:", speed_labels(0x1000))
PY
check <<'OUT'
4X SDR 8.00 Gb/s
4X QDR 32.00 Gb/s
4X FDR10 none
4X FDR 54.55 Gb/s
4X EDR 100.00 Gb/s
4X HDR 206.06 Gb/s
4X NDR 412.12 Gb/s
4X XDR 824.24 Gb/s
speed mask 8 (FDR10): []
speed mask 0x1000: ['XDR']
OUT
echo ok
