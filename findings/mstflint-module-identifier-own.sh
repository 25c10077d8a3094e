#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register databases for adapters and switches.
# Guess:   The kind of a module in PDDR's page of module information is the identifier that its EEPROM has in byte 0, with SFF-8024's numbers: SFP28 3, QSFP+ 0x0d,
#          QSFP28 0x11, QSFP-DD 0x18, OSFP 0x19; so is the module type of PMTM.
# Seen:    Each register has numbers of its own: QSFP28 is 0, QSFP+ 1, SFP 2, QSFP-DD 6 and OSFP 8 in PDDR, QSFP of any speed is 1, QSFP-DD 14 and OSFP 15 in PMTM. Other
#          fields of the same page are bytes of the EEPROM as they are, after SFF-8636, SFF-8472 or CMIS according to this number.
# Matters: The identifier of PDDR is named by the database's description, not by SFF-8024; MCIA reads the EEPROM's own byte 0.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
for kind in hca switch; do
    python3 - "$root/usr/share/mstflint/prm_dbs/$kind/ext/register_access_table.adb" $kind <<'PY'
import re
import sys
from xml.etree import ElementTree

database = ElementTree.parse(sys.argv[1]).getroot()
identifier = database.find("./node[@name='pddr_module_info_ext']/field[@name='cable_identifier']").get("descr")
print(sys.argv[2], "PDDR:", *(f"{number} {name}" for number, name in re.findall(r"(\d+): (\w+)", identifier)))
kinds = dict(pair.split("=") for pair in database.find("./node[@name='pmtm_reg_ext']/field[@name='module_type']").get("enum").split(","))
print(sys.argv[2], "PMTM:", *(f"{int(kinds[name], 0)} {name}" for name in ("QSFP", "SFP", "QSFP_DD", "OSFP", "SFP_DD")))
for name in ("cable_technology", "cable_breakout"):
    description = database.find(f"./node[@name='pddr_module_info_ext']/field[@name='{name}']").get("descr")
    print(sys.argv[2], f"{name}:", *re.findall(r"[Bb]yte ?\d+(?: per SFF-\d+)?", description))
PY
done >"$seen"
check <<'OUT'
hca PDDR: 0 QSFP28 1 QSFP_Plus 2 SFP28_or_SFP_Plus 3 QSA 4 Backplane 5 SFP_DD 6 QSFP_DD 7 QSFP_CMIS 8 OSFP 9 C2C 10 DSFP 11 QSFP_Split_Cable 12 CPO 13 OE 14 ELS
hca PMTM: 1 QSFP 2 SFP 14 QSFP_DD 15 OSFP 16 SFP_DD
hca cable_technology: Byte 147 per SFF-8636 byte8 per SFF-8472 Byte 212
hca cable_breakout: Byte113 per SFF-8636
switch PDDR: 0 QSFP28 1 QSFP_Plus 2 SFP28_or_SFP_Plus 3 QSA 4 Backplane 5 SFP_DD 6 QSFP_DD 7 QSFP_CMIS 8 OSFP 9 C2C 10 DSFP 11 QSFP_Split_Cable 12 CPO 13 OE 14 ELS
switch PMTM: 1 QSFP 2 SFP 14 QSFP_DD 15 OSFP 16 SFP_DD
switch cable_technology: Byte 147 per SFF-8636 byte8 per SFF-8472 Byte 212
switch cable_breakout: Byte113 per SFF-8636
OUT
echo ok
