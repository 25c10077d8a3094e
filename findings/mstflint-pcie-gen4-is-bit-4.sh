#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters.
# Guess:   MPEIN, the register of the card's PCIe link, has its speeds as a mask with one bit for each generation: 8 GT/s is 4, 16 is 8, 32 is 16.
# Seen:    There is no bit 3: 16 GT/s is bit 4 (16), 32 GT/s bit 5 (32), generation 6 bit 6 (64). The numbers are those of InfiniBand's speeds, as the
#          lanes' register SLTP says, in which generation 3 shares a number with QDR and 4 with FDR, and 3 is FDR10, which PCIe has not.
# Matters: With bits counted by generations a card in a slot of generation 4 seems to run at 32 GT/s, and one at 8 GT/s is still read right.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import re
import sys
from xml.etree import ElementTree

nodes = {node.get("name"): node for node in ElementTree.parse(sys.argv[1]).getroot().iter("node")}
for name, wanted in (("mpein_reg_ext", ("link_speed_enabled", "link_speed_active", "link_peer_max_speed")), ("sltp_reg_ext", ("lane_speed",))):
    for field in nodes[name].findall("field"):
        if field.get("name") in wanted:
            codes = re.findall(r"(?:Bit )?(\d+)(?::| - )\s*([^;\\]*?)\s*(?:\\;|$)", field.get("descr"))
            print(name, field.get("name"), "; ".join(f"{number}: {text}" for number, text in codes))
PY
check <<'OUT'
mpein_reg_ext link_speed_enabled 0: 2.5G - (Gen1); 1: 5G - (Gen2); 2: 8G - (Gen3); 4: 16G - (Gen4); 5: 32G (Gen5); 6: 32G PAM-4 (Gen6)
mpein_reg_ext link_speed_active 0: 2.5G (Gen1); 1: 5G (Gen2); 2: 8G (Gen3); 4: 16G (Gen4); 5: 32G (Gen5); 6: 32G PAM-4 (Gen6)
mpein_reg_ext link_peer_max_speed 0: 2.5G - (Gen1); 1: 5G - (Gen2); 2: 8G - (Gen3); 4: 16G - (Gen4); 5: 32G (Gen5); 6: 32G PAM-4 (Gen6)
sltp_reg_ext lane_speed 0: SDR / Gen1 (PCIe); 1: DDR / Gen2 (PCIe) / 5GBASE-R; 2: QDR / Gen3 (PCIe); 3: FDR10 (10GE / 40GE); 4: FDR (56GE) / Gen4 (PCIe); 5: EDR (25GE / 50GE / 100GE) / Gen5 (PCIe); 6: HDR (50GE / 200GE / 400GE); 7: NDR /100GE / 200GE / 400GE / 800GE (53.125 Gbd / 106.25Gb/s); 8: XDR (106.25 Gbd / 212.5Gb/s); 9: Reserved; 10: 1GE; 11: 2.5GE (XAUI); 12: 50GE-KR4; 15: Reserved
OUT
echo ok
