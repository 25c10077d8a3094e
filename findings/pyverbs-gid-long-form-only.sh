#!/usr/bin/env bash
# Package: python3-pyverbs 56.1 (Debian 13).
# Guess:   A GID is written as an IPv6 address and so may be shortened: GID("fe80::1") is accepted, IPv4-mapped ones as ::ffff:10.0.0.1 too.
# Seen:    Only eight groups of four digits pass; the two short forms raise PyverbsUserError. An address printed by ip or ibv_devinfo -v (which shortens
#          mapped GIDs to "::ffff:10.0.0.1, RoCE v2") cannot be handed back. The list of devices raises instead of being empty when
#          the machine has no RDMA subsystem.
# Matters: Our own GID texts must be read by these tests in the long form.
source "$(dirname "$0")/lib.sh"
debs trixie python3-pyverbs=56.1-1
mkdir -p "$tmp/share"
cat >"$tmp/share/gid.py" <<'PY'
from pyverbs.addr import GID
from pyverbs.device import get_device_list

for text in ("fe80:0000:0000:0000:0202:c9ff:fe00:0001", "fe80::0202:c9ff:fe00:1", "::ffff:10.0.0.1"):
    try:
        print(f"{text}: {GID(text)}")
    except Exception as error:
        print(f"{text}: {type(error).__name__}")
try:
    print("devices:", get_device_list())
except Exception as error:
    print("devices:", type(error).__name__)
PY
run python3 /tmp/gid.py >"$seen"
check <<'OUT'
fe80:0000:0000:0000:0202:c9ff:fe00:0001: fe80:0000:0000:0000:0202:c9ff:fe00:0001
fe80::0202:c9ff:fe00:1: PyverbsUserError
::ffff:10.0.0.1: PyverbsUserError
devices: PyverbsRDMAError
OUT
echo ok
