#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), mlxconfig's database for adapters (SQLite) and the register database for adapters.
# Guess:   A PCIe width, whose words are PCI_X1 to PCI_X16, has one code in the configuration of a card, the logarithm: x1 is 0, x16 is 4.
# Seen:    PCI_BUS00_WIDTH and its like begin with PCI_INACTIVE, so that x1 is 1 and x16 is 5; PCI_BUS0_RESTRICT_WIDTH has x1 at 0 and x16 at 4. The register
#          MPEIN has the number of lanes. Speeds have one code in both.
# Matters: The number 4 of such a setting is eight lanes in one and sixteen in the other: take the word.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint" >"$seen" <<'PY'
import re
import sqlite3
import sys
from xml.etree import ElementTree

database = sqlite3.connect(sys.argv[1] + "/mlxconfig_dbs/mlxconfig_host.db")
codes = {}
for name, tlv, label, text in database.execute("select name, tlv_name, mlxconfig_name, textual_values from params where type = 'ENUM'"):
    if re.search("PCI_X16|PCI_GEN_5", text):
        codes.setdefault(text, set()).add(re.sub(r"\d+", "N", label or f"{tlv}.{name}"))
for text, names in sorted(codes.items()):
    print(*sorted(names)[:4], "of", len(names), text)
registers = ElementTree.parse(sys.argv[1] + "/prm_dbs/hca/ext/register_access_table.adb").getroot()
print("MPEIN", registers.find("./node[@name='mpein_reg_ext']/field[@name='link_width_active']").get("descr").replace("\\;", " "))
PY
check <<'OUT'
PCI_BUSN_RESTRICT_SPEED nv_global_pci_cap_N.busN_speed_max of 2 PCI_GEN_1=0x0,PCI_GEN_2=0x1,PCI_GEN_3=0x2,PCI_GEN_4=0x3,PCI_GEN_5=0x4
PCI_BUSN_SPEED of 1 PCI_GEN_1=0x0,PCI_GEN_2=0x1,PCI_GEN_3=0x2,PCI_GEN_4=0x3,PCI_GEN_5=0x4,PCI_GEN_6=0x5
PCI_BUSN_WIDTH of 1 PCI_INACTIVE=0x0,PCI_X1=0x1,PCI_X2=0x2,PCI_X4=0x3,PCI_X8=0x4,PCI_X16=0x5
PCI_BUSN_RESTRICT_WIDTH nv_global_pci_cap_N.busN_width_max of 2 PCI_X1=0x0,PCI_X2=0x1,PCI_X4=0x2,PCI_X8=0x3,PCI_X16=0x4
MPEIN Negotiated Link Width, pcie_link_width active: 1: 1x 2: 2x 4: 4x 8: 8x 16: 16x
OUT
echo ok
