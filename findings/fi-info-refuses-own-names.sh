#!/usr/bin/env bash
# Package: libfabric-bin and libfabric1 2.1.0 (Debian 13).
# Guess:   fi_info -c and -a take each capability and address format of libfabric by the name that libfabric's fi_tostr prints for it.
# Seen:    The capabilities FI_AV_USER_ID, FI_PEER and FI_RMA_PMEM and five of fourteen address formats, FI_ADDR_IB_UD, FI_ADDR_CXI and FI_ADDR_UCX
#          among them, are printed under these names and refused under them ("Unrecognized", exit code 22); the other 25 capabilities are taken.
# Matters: fi_info cannot be asked which providers have such a capability: look for the name in the output of fi_info -v.
source "$(dirname "$0")/lib.sh"
debs trixie libfabric-bin=2.1.0-1.1 python3=3.13.5-1 bash
mkdir -p "$tmp/share"
cat >"$tmp/share/names.py" <<'PY'
from ctypes import CDLL, byref, c_char_p, c_uint32, c_uint64

CAPABILITIES, ADDRESS_FORMAT = 2, 4
fabric = CDLL("libfabric.so.1")
fabric.fi_tostr.restype = c_char_p
for option, kind, values in (("-c", CAPABILITIES, (c_uint64(1 << bit) for bit in range(64))), ("-a", ADDRESS_FORMAT, (c_uint32(n) for n in range(24)))):
    for value in values:
        name = fabric.fi_tostr(byref(value), kind).decode()
        if name.startswith("FI_"):
            print(option, name)
PY
run python3 /tmp/names.py >"$tmp/share/names"
{
    echo "names printed: $(grep -c ^-c "$tmp/share/names") of capabilities, $(grep -c ^-a "$tmp/share/names") of address formats"
    run bash -c 'while read -r option name; do fi_info "$option" "$name"; code=$?; [ $code != 22 ] || echo "fi_info $option $name: exit code $code"; done </tmp/names 2>&1' |
        grep -E '^error|exit code'
} >"$seen"
check <<'OUT'
names printed: 28 of capabilities, 14 of address formats
error: Unrecognized capability: FI_AV_USER_ID
fi_info -c FI_AV_USER_ID: exit code 22
error: Unrecognized capability: FI_PEER
fi_info -c FI_PEER: exit code 22
error: Unrecognized capability: FI_RMA_PMEM
fi_info -c FI_RMA_PMEM: exit code 22
error: Unrecognized address format: FI_ADDR_IB_UD
fi_info -a FI_ADDR_IB_UD: exit code 22
error: Unrecognized address format: FI_ADDR_PSMX3
fi_info -a FI_ADDR_PSMX3: exit code 22
error: Unrecognized address format: FI_ADDR_OPX
fi_info -a FI_ADDR_OPX: exit code 22
error: Unrecognized address format: FI_ADDR_CXI
fi_info -a FI_ADDR_CXI: exit code 22
error: Unrecognized address format: FI_ADDR_UCX
fi_info -a FI_ADDR_UCX: exit code 22
OUT
echo ok
