#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register databases for adapters and switches.
# Guess:   In the codes of a field (name=value) each value stands once. In a mask of 128 bits, as PCAM's features, the values go up to bit 127: the high
#          bits of the number of a local port, which are bit 64, have the value 2 to the 64.
# Seen:    Each value is the bit within its own word of 32 bits, and the word is not said: of the 58 features of PCAM 29 values are left, and 1 stands for bits 0,
#          32 and 64. The number of a feature is in the prose beside it only. Other fields repeat by mistake: reading and writing UTCE are both 0.
# Matters: A table generated from the codes takes one feature of a card for another one; take the bits of PCAM and MCAM from the description.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
for kind in hca switch; do
    python3 - "$kind" "$root/usr/share/mstflint/prm_dbs/$kind/ext/register_access_table.adb" <<'PY'
import re
import sys
from xml.etree import ElementTree

for node in ElementTree.parse(sys.argv[2]).getroot().iter("node"):
    for field in node.findall("field"):
        names = {}
        for pair in filter(None, (field.get("enum") or "").split(",")):
            name, value = pair.split("=")
            names.setdefault(int(value, 0), []).append(name)
        if all(len(same) == 1 for same in names.values()):
            continue
        print(f"{sys.argv[1]} {node.get('name')}.{field.get('name')}: {sum(map(len, names.values()))} names, {len(names)} values")
        for value, same in names.items():
            if len(same) > 1 and (len(names) < 20 or value == 1):
                print(f"  {value:#x}: {', '.join(same)}")
        if sys.argv[1] == "hca" and node.get("name") == "pcam_reg_ext":
            for feature in names[1]:
                print("  described as", re.search(rf"Bit (\d+): {feature}", field.get("descr"))[0])
PY
done >"$seen"
check <<'OUT'
hca pcam_reg_ext.feature_cap_mask: 58 names, 29 values
  0x1: PPCNT_counter_group_Phy_statistical_counter_group, PDDR_ext_eth_proto_support, Local_port_MSB
  described as Bit 0: PPCNT_counter_group_Phy_statistical_counter_group
  described as Bit 32: PDDR_ext_eth_proto_support
  described as Bit 64: Local_port_MSB
hca pprm_reg_ext.no_neg_bhvr: 4 names, 3 values
  0x1: host_logcic_re, Enabled
hca sltp_5nm_ext.ob_bad_stat: 13 names, 12 values
  0x200: tap9_is_out_of_range, sum_of_taps_is_out_of_range
switch pcam_reg_ext.feature_cap_mask: 57 names, 29 values
  0x1: PPCNT_counter_group_Phy_statistical_counter_group, PDDR_ext_eth_proto_support, Local_port_MSB
switch pprm_reg_ext.no_neg_bhvr: 4 names, 3 values
  0x1: host_logcic_re, Enabled
switch ritr_ext.type: 6 names, 5 values
  0x0: VLAN, IB_SWID
switch sltp_5nm_ext.ob_bad_stat: 13 names, 12 values
  0x200: tap9_is_out_of_range, sum_of_taps_is_out_of_range
switch utce_ext.oper: 3 names, 2 values
  0x0: Write, Read
OUT
echo ok
