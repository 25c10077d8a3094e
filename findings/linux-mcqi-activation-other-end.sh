#!/usr/bin/env bash
# Package: headers of Linux 6.12.117 and mstflint 4.31.0 (Debian 13).
# Guess:   The ways of activating a firmware image that MCQI reports (server reboot, firmware reset, power cycle) are the same bits for both.
# Seen:    Linux puts the first at the highest bits of the word, 31 downwards; the database of mstflint at the lowest, 5 downwards, in the same order.
#          They have no bit in common, and the database gives the record 0x7c bytes where Linux has 4.
# Matters: mlx5_core never reads the record, so the difference shows nowhere; which end is right has to be asked of a card.
source "$(dirname "$0")/lib.sh"
debs trixie linux-headers-6.12.117+deb13-common=6.12.117-1 mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root"/usr/src/*/include/linux/mlx5/mlx5_ifc.h \
    "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys

from ifc import Header, Registers

linux, database = Header(sys.argv[1]), Registers(sys.argv[2])
there = database.fields("mcqi_activation_method_ext")
for name, (at, _) in linux.fields("mcqi_activation_method").items():
    if not name.startswith("reserved"):
        print(f"{name}: Linux bit {31 - at}, mstflint {'bit ' + str(31 - there[name][0]) if name in there else 'absent'}")
print(f"size: Linux {linux.bits('mcqi_activation_method') // 8:#x}, mstflint {database.bytes('mcqi_activation_method_ext'):#x}")
PY
check <<'OUT'
pending_server_ac_power_cycle: Linux bit 31, mstflint bit 5
pending_server_dc_power_cycle: Linux bit 30, mstflint bit 4
pending_server_reboot: Linux bit 29, mstflint bit 3
pending_fw_reset: Linux bit 28, mstflint bit 2
auto_activate: Linux bit 27, mstflint bit 1
all_hosts_sync: Linux bit 26, mstflint bit 0
device_hw_reset: Linux bit 25, mstflint absent
size: Linux 0x4, mstflint 0x7c
OUT
echo ok
