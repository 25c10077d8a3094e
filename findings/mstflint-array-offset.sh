#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters.
# Guess:   The offset of an array, BYTE.BIT with the bit counted from the lowest one as for any field, is where the array begins: an array that fills
#          whole words is at bit 0.
# Seen:    The offset is that of element 0, and elements of a word are counted from its highest end. QPDPM's 64 elements of 16 bits fill the words
#          4 to 0x83 and are said to be at 0x4.16; read as a beginning, they would end 2 bytes behind the register. Texts are at bit 24.
# Matters: A reader of the database has to take an array's offset down to its word, and only when the elements are smaller than a word.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys

from ifc import Registers

database = Registers(sys.argv[1])
for node, name in (("qpdpm_ext", "dscp"), ("pmlp_reg_ext", "lane_module_mapping"), ("mgir_fw_info_ext", "psid"), ("pmmp_reg_ext", "power_setpoint_lane")):
    field = next(field for field in database.nodes[node].findall("field") if field.get("name") == name)
    count = int(field.get("high_bound")) - int(field.get("low_bound")) + 1
    bits = Registers.number(field.get("size"))
    word, bit = field.get("offset").split(".")
    end = int(word, 16) + (int(bit) + bits) / 8
    print(f"{node} of {database.bytes(node):#x} bytes: {name} at {word}.{bit}, {count} elements of {bits // count} bits, would end at byte {end:g}")
PY
check <<'OUT'
qpdpm_ext of 0x84 bytes: dscp at 0x4.16, 64 elements of 16 bits, would end at byte 134
pmlp_reg_ext of 0x40 bytes: lane_module_mapping at 0x4.0, 8 elements of 32 bits, would end at byte 36
mgir_fw_info_ext of 0x40 bytes: psid at 0x10.24, 16 elements of 8 bits, would end at byte 35
pmmp_reg_ext of 0x40 bytes: power_setpoint_lane at 0x30.16, 8 elements of 16 bits, would end at byte 66
OUT
echo ok
