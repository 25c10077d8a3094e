#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters.
# Guess:   A FEC has one number within a register: PPLM's active FEC and its override are both masks of the same bits, so firecode is 2 and RS is 4 in both enumerations.
# Seen:    The enumeration of the masks fec_override_* has the values of the bits (No_FEC=1, Firecode_FEC=2, RS_FEC=4), that of fec_mode_active, which the description
#          calls a bit mask as well, has the numbers of the bits (No_FEC=0, Firecode_FEC=1, Standard_RS_FEC=2). PTYS's proto_mask has values again.
# Matters: The name for an active FEC of 2 is taken from the bit, firecode, not from the enumeration's 2, RS.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys
from xml.etree import ElementTree

database = ElementTree.parse(sys.argv[1]).getroot()
for register, name in (
    ("pplm_reg_ext", "fec_override_cap_25g"),
    ("pplm_reg_ext", "fec_override_admin_25g"),
    ("pplm_reg_ext", "fec_mode_active"),
    ("pddr_operation_info_page_ext", "fec_mode_active"),
    ("ptys_reg_ext", "proto_mask"),
):
    field = database.find(f"./node[@name='{register}']/field[@name='{name}']")
    print(f"{register}.{name}", *field.get("enum").split(",")[:4])
    print("    described as:", field.get("descr").split("\\;")[0])
PY
check <<'OUT'
pplm_reg_ext.fec_override_cap_25g No_FEC=0x1 Firecode_FEC=0x2 RS_FEC=0x4 Reserved=0x8
    described as: 25GE Ethernet FEC override capability bitmask:
pplm_reg_ext.fec_override_admin_25g No_FEC=0x1 Firecode_FEC=0x2 RS_FEC=0x4
    described as: 25GE Ethernet FEC override admin, see 25g_fec_override_cap. (one-hot setting): 
pplm_reg_ext.fec_mode_active No_FEC=0x0 Firecode_FEC=0x1 Standard_RS_FEC=0x2 Standard_LL_RS_FEC=0x3
    described as: Active FEC (bitmask)
pddr_operation_info_page_ext.fec_mode_active No_FEC=0x0 Firecode_FEC=0x1 Standard_RS_FEC=0x2 Standard_LL_RS_FEC=0x3
    described as: FEC mode active
ptys_reg_ext.proto_mask InfiniBand=0x1 NVLink=0x2 Ethernet=0x4
    described as: Protocol Mask. Indicates which of the protocol data is valid
OUT
echo ok
