#!/usr/bin/env bash
# Package: headers of Linux 6.12.117 and mstflint 4.31.0 (Debian 13).
# Guess:   One place of the register PPCNT has one name, or two words for one thing, in Linux's header and in NVIDIA's own database for adapters.
# Seen:    In the statistical group Linux's phy_corrected_bits_lane0 is the database's phy_raw_errors_lane0: errors before any correction against bits
#          that were corrected. In the InfiniBand group Linux's link_overrun_errors of 8 bits is two counters of 4 bits.
# Matters: By the database's name the lanes' counters need no FEC to count; a value 0x21 of link_overrun_errors is two integrity errors and one overrun.
source "$(dirname "$0")/lib.sh"
debs trixie linux-headers-6.12.117+deb13-common=6.12.117-1 mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root"/usr/src/*/include/linux/mlx5/mlx5_ifc.h \
    "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys

from ifc import Header, Registers

linux, database = Header(sys.argv[1]), Registers(sys.argv[2])
for group, node, wanted in (
    ("phys_layer_statistical_cntrs", "phys_layer_stat_cntrs_ext", ("phy_corrected_bits_low", "phy_corrected_bits_lane0_low", "phy_corrected_bits_lane3_low")),
    ("ib_port_cntrs_grp_data_layout", "IB_portcntrs_attribute_grp_data_ext", ("link_overrun_errors", "vl_15_dropped")),
):
    for name in wanted:
        at, bits = linux.fields(group)[name]
        there = [f"{field} ({size} bits)" for field, (first, size) in database.fields(node).items() if first < at + bits and at < first + size]
        print(f"{at // 8:#x} {name} ({bits} bits): {', '.join(there)}")
PY
check <<'OUT'
0x1c phy_corrected_bits_low (32 bits): phy_corrected_bits_low (32 bits)
0x24 phy_corrected_bits_lane0_low (32 bits): phy_raw_errors_lane0_low (32 bits)
0x3c phy_corrected_bits_lane3_low (32 bits): phy_raw_errors_lane3_low (32 bits)
0xf link_overrun_errors (8 bits): excessive_buffer_overrun_errors (4 bits), local_link_integrity_errors (4 bits)
0x12 vl_15_dropped (16 bits): vl_15_dropped (16 bits)
OUT
echo ok
