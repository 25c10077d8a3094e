#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13) and 4.33.0 (Debian unstable), their register databases for adapters.
# Guess:   Between two releases a register gains fields and grows at its end; a field that both name stays where it is, as in any interface to firmware.
# Seen:    Fields move: els_oper_state of PDDR's module page to another word, els_index of PMDR by ten bits within its word. The laser's states shrink
#          from whole bytes to bits at the upper end, while MGIR's num_ports grows to 12 bits and two grades of SLRG to 16. QETCR left altogether.
# Matters: A decoder that is generated from one release misreads what firmware of another one's time fills in: the release belongs to the layout.
source "$(dirname "$0")/lib.sh"
root=$tmp/new debs sid mstflint=4.33.0+1-1.1
debs trixie mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root" "$tmp/new" >"$seen" <<'PY'
import sys

from ifc import Registers

old, new = ({kind: Registers(f"{top}/usr/share/mstflint/prm_dbs/{kind}/ext/register_access_table.adb") for kind in ("hca", "switch")} for top in sys.argv[1:])
for kind in ("hca", "switch"):
    print(f"{kind}: QETCR in the older {'qetcr_ext' in old[kind].nodes}, in the newer {'qetcr_ext' in new[kind].nodes}")
for node in ("mgir_hardware_info_ext", "pddr_module_info_ext", "pmdr_reg_ext", "slrg_40nm_28nm_ext"):
    before, after = (release["hca"].fields(node) for release in (old, new))
    for name in sorted(before.keys() & after.keys(), key=lambda name: before[name]):
        if before[name] != after[name] and not name.startswith("reserved"):
            places = (f"word {at // 32 * 4:#x} bits {31 - at % 32}:{32 - at % 32 - bits}" for at, bits in (before[name], after[name]))
            print(f"{node}.{name}: {', then '.join(places)}")
PY
check <<'OUT'
hca: QETCR in the older True, in the newer False
switch: QETCR in the older True, in the newer False
mgir_hardware_info_ext.num_ports: word 0x4 bits 23:16, then word 0x4 bits 27:16
pddr_module_info_ext.laser_enabled: word 0xc4 bits 31:24, then word 0xc4 bits 31:31
pddr_module_info_ext.laser_status: word 0xc4 bits 23:8, then word 0xc4 bits 29:28
pddr_module_info_ext.laser_restriction: word 0xc4 bits 7:0, then word 0xc4 bits 25:25
pddr_module_info_ext.els_oper_state: word 0xc8 bits 31:24, then word 0xc4 bits 23:20
pmdr_reg_ext.oe_mcu_index: word 0x44 bits 30:25, then word 0x44 bits 30:24
pmdr_reg_ext.els_index: word 0x44 bits 24:20, then word 0x44 bits 15:10
slrg_40nm_28nm_ext.phase_eo_pos: word 0x1c bits 23:16, then word 0x1c bits 31:16
slrg_40nm_28nm_ext.phase_eo_neg: word 0x1c bits 7:0, then word 0x1c bits 15:0
OUT
echo ok
