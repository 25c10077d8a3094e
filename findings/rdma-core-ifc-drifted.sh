#!/usr/bin/env bash
# Package: rdma-core 56.1 (Debian 13, source) and the headers of Linux 6.12.117 (Debian 13).
# Guess:   The mlx5_ifc.h of rdma-core is a cut copy of Linux's: what both have stands at the same bits.
# Seen:    Four fields differ. fast_teardown is not the newer one grown: Linux has it at bit 0xfb of the capabilities, rdma-core at 0x111, beside
#          force_teardown, where Linux has a reserved bit. The EQ context's intr has 8 bits in rdma-core and 12 in Linux, a memory key's page size 5 and
#          6, and a reformat context's type 3 and 8.
# Matters: Layouts have to be taken from one of the two as a whole; a driver that takes rdma-core's fast_teardown tests another capability.
source "$(dirname "$0")/lib.sh"
debs trixie linux-headers-6.12.117+deb13-common=6.12.117-1
sources trixie rdma-core=56.1-1 providers/mlx5/mlx5_ifc.h
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root"/usr/src/*/include/linux/mlx5/mlx5_ifc.h "$tmp/sources/rdma-core/providers/mlx5/mlx5_ifc.h" >"$seen" <<'PY'
import sys

from ifc import Header

linux, copy = map(Header, sys.argv[1:])
both = 0
for name in sorted(linux.bodies.keys() & copy.bodies.keys()):
    try:
        theirs, ours = linux.layout(name)[0], copy.layout(name)[0]
    except KeyError:
        continue  # a part of it is defined in another header
    both += 1
    for field in sorted(theirs.keys() & ours.keys()):
        if not field.startswith("reserved") and theirs[field] != ours[field]:
            (at, bits), (copied, copied_bits) = theirs[field], ours[field]
            print(f"{name[9:-5]}.{field}: Linux bit {at:#x}, {bits} wide; rdma-core bit {copied:#x}, {copied_bits} wide")
print(f"structures in both headers: {both > 100 and 'more than 100' or both}")
at = copy.fields("cmd_hca_cap")["fast_teardown"][0]
for label, header in (("Linux", linux), ("rdma-core", copy)):
    inside = [field for field, (first, bits) in header.fields("cmd_hca_cap").items() if first <= at < first + bits]
    print(f"bit {at:#x} of the capabilities in {label}: {' '.join(inside)}")
PY
check <<'OUT'
cmd_hca_cap.fast_teardown: Linux bit 0xfb, 1 wide; rdma-core bit 0x111, 1 wide
eqc.intr: Linux bit 0xb4, 12 wide; rdma-core bit 0xb8, 8 wide
mkc.log_page_size: Linux bit 0x1da, 6 wide; rdma-core bit 0x1db, 5 wide
packet_reformat_context_in.reformat_type: Linux bit 0x0, 8 wide; rdma-core bit 0x5, 3 wide
structures in both headers: more than 100
bit 0x111 of the capabilities in Linux: reserved_at_111
bit 0x111 of the capabilities in rdma-core: fast_teardown
OUT
echo ok
