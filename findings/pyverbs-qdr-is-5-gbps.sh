#!/usr/bin/env bash
# Package: python3-pyverbs 56.1 (Debian 13).
# Guess:   pyverbs names an active speed as ibv_devinfo does: 4 (QDR) and 8 (FDR10) are 10.0 Gbps; physical state 0 is "No state change".
# Seen:    4 is "5.0 Gbps (4)", the text of DDR, so a QDR port seems half as fast; 8 is "10.0 Gbps (8)". Since 56 speed_to_str takes the 8-bit speed
#          and the extended one, of which the second wins if it is not 0. Physical state 0 is invalid.
# Matters: A test that compares a port's printed speed through pyverbs fails on QDR for a reason outside the driver.
source "$(dirname "$0")/lib.sh"
debs trixie python3-pyverbs=56.1-1
mkdir -p "$tmp/share"
cat >"$tmp/share/speeds.py" <<'PY'
from pyverbs.device import phys_state_to_str, speed_to_str

for speeds in ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (0, 4), (128, 256)):
    print("speed", *speeds, speed_to_str(*speeds))
print("physical state 0", phys_state_to_str(0))
PY
run python3 /tmp/speeds.py >"$seen"
check <<'OUT'
speed 1 0 2.5 Gbps (1)
speed 2 0 5.0 Gbps (2)
speed 4 0 5.0 Gbps (4)
speed 8 0 10.0 Gbps (8)
speed 16 0 14.0 Gbps (16)
speed 0 4 5.0 Gbps (4)
speed 128 256 200.0 Gbps (256)
physical state 0 Invalid physical state
OUT
echo ok
