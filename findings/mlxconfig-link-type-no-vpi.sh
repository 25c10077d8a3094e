#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), mlxconfig's database for adapters (SQLite).
# Guess:   LINK_TYPE of a port is IB(1), ETH(2) or VPI(3), as NVIDIA's guides for cards with automatic sensing say; NUM_OF_TC and NUM_OF_VL are counts.
# Seen:    VPI is gone: two values, though the field has two bits. NUM_OF_TC 0 means eight classes and 1 to 7 are counts; NUM_OF_VL is a code
#          in which 5 is fifteen lanes. The database still has "RoCE v1.5", with an IP protocol number of its own.
# Matters: A port that is found with link type 3 was set by an older tool; a table of our values has to name these codes, not counts.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db" >"$seen" <<'PY'
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
for name in ("LINK_TYPE", "NUM_OF_TC", "NUM_OF_VL"):
    print(name, *database.execute("select size, textual_values from params where mlxconfig_name = ?", (name,)).fetchone())
print("ROCE_NEXT_PROTOCOL", *database.execute("select tlv_name, size from params where mlxconfig_name = 'ROCE_NEXT_PROTOCOL'").fetchone())
PY
check <<'OUT'
LINK_TYPE 0x0.2 IB=0x1,ETH=0x2
NUM_OF_TC 0x0.4 _8_TCs=0x0,_1_TC=0x1,_2_TCs=0x2,_3_TCs=0x3,_4_TCs=0x4,_5_TCs=0x5,_6_TCs=0x6,_7_TCs=0x7
NUM_OF_VL 0x0.4 _1_VL=0x1,_2_VLs=0x2,_4_VLs=0x3,_8_VLs=0x4,_15_VLs=0x5
ROCE_NEXT_PROTOCOL nv_roce_1_5_conf 0x0.8
OUT
echo ok
