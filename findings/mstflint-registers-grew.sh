#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters.
# Guess:   The access registers have the sizes of Linux's mlx5_ifc.h: PTYS 0x40, MCIA 0x90, PPLM 0x50 bytes.
# Seen:    NVIDIA's own database has longer ones: PTYS 0x44, MCIA 0x94 (the high half of a password), PPLM 0x78 (FEC of 100 and 200 Gb/s
#          lanes); PTYS packs lane_rate_oper (20 bits) above Linux's connector_type, where Linux has reserved bits.
# Matters: ACCESS_REG carries the length that the driver chooses; a driver with Linux's layouts reads a prefix, and must mask connector_type to 4 bits.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys
from xml.etree import ElementTree

nodes = {node.get("name"): node for node in ElementTree.parse(sys.argv[1]).getroot().iter("node")}
for name, linux in (("ptys_reg_ext", 0x40), ("mcia_ext", 0x90), ("pplm_reg_ext", 0x50), ("pmtu_reg_ext", 0x10)):
    node = nodes[name]
    size = int(node.get("size").split(".")[0], 16)
    print(f"{name}: {size:#x} bytes, Linux {linux:#x}")
    for field in node.findall("field"):
        offset, size = field.get("offset"), field.get("size")
        if "reserved" not in field.get("name") and (int(offset.split(".")[0], 16) >= linux or (name, offset[:5]) == ("ptys_reg_ext", "0x2C.")):
            print(f"    {field.get('name')} at {offset}, size {size}")
PY
check <<'OUT'
ptys_reg_ext: 0x44 bytes, Linux 0x40
    connector_type at 0x2C.0, size 0x0.4
    lane_rate_oper at 0x2C.4, size 0x0.20
    xdr_2x_slow_active at 0x2C.24, size 0x0.1
    xdr_2x_slow_admin at 0x2C.25, size 0x0.1
    force_lt_frames_admin at 0x2C.28, size 0x0.2
    force_lt_frames_cap at 0x2C.30, size 0x0.1
    xdr_2x_slow_cap at 0x2C.31, size 0x0.1
mcia_ext: 0x94 bytes, Linux 0x90
    password_msb at 0x90.0, size 0x4.0
pplm_reg_ext: 0x78 bytes, Linux 0x50
    nvlink_fec_override_admin_nvl_phy6 at 0x50.0, size 0x0.16
    nvlink_fec_override_cap_nvl_phy6 at 0x50.16, size 0x0.16
    fec_override_cap_800g_4x at 0x58.0, size 0x0.16
    fec_override_cap_1600g_8x at 0x58.16, size 0x0.16
    fec_override_cap_200g_1x at 0x5C.0, size 0x0.16
    fec_override_cap_400g_2x at 0x5C.16, size 0x0.16
    fec_override_admin_800g_4x at 0x60.0, size 0x0.16
    fec_override_admin_1600g_8x at 0x60.16, size 0x0.16
    fec_override_admin_200g_1x at 0x64.0, size 0x0.16
    fec_override_admin_400g_2x at 0x64.16, size 0x0.16
pmtu_reg_ext: 0x10 bytes, Linux 0x10
OUT
echo ok
