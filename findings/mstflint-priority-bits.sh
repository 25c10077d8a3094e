#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register databases for adapters and switches.
# Guess:   A priority or traffic class takes three bits in every register (eight of them), as in Linux's mlx5_ifc.h: PPCNT.prio_tc [2:0],
#          QTCT prio [2:0] and tclass [2:0].
# Seen:    prio_tc has five bits, QTCT's priority is named switch_prio and has four, tclass four; the local port has two high bits (lp_msb, [13:12])
#          in the adapter's registers too, so a port number has ten bits.
# Matters: What Linux calls reserved is in use: a decoder that masks three bits shows class 8 as class 0.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/prm_dbs" >"$seen" <<'PY'
import sys
from xml.etree import ElementTree

for kind in ("hca", "switch"):
    tree = ElementTree.parse(f"{sys.argv[1]}/{kind}/ext/register_access_table.adb")
    nodes = {node.get("name"): node for node in tree.getroot().iter("node")}
    for name, wanted in (("ppcnt_reg_ext", ("prio_tc", "local_port", "lp_msb")), ("qtct_ext", ("switch_prio", "prio", "tclass", "lp_msb"))):
        if name not in nodes:
            print(kind, name, "absent")
            continue
        fields = {field.get("name"): field for field in nodes[name].findall("field")}
        print(kind, name, ", ".join(f"{w} at {fields[w].get('offset')} size {fields[w].get('size')}" if w in fields else f"no {w}" for w in wanted))
PY
check <<'OUT'
hca ppcnt_reg_ext prio_tc at 0x4.0 size 0x0.5, local_port at 0x0.16 size 0x0.8, lp_msb at 0x0.12 size 0x0.2
hca qtct_ext switch_prio at 0x0.0 size 0x0.4, no prio, tclass at 0x4.0 size 0x0.4, lp_msb at 0x0.12 size 0x0.2
switch ppcnt_reg_ext prio_tc at 0x4.0 size 0x0.5, local_port at 0x0.16 size 0x0.8, lp_msb at 0x0.12 size 0x0.2
switch qtct_ext switch_prio at 0x0.0 size 0x0.4, no prio, tclass at 0x4.0 size 0x0.4, lp_msb at 0x0.12 size 0x0.2
OUT
echo ok
