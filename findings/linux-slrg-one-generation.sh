#!/usr/bin/env bash
# Package: headers of Linux 6.12.117 and mstflint 4.31.0 (Debian 13).
# Guess:   SLRG, the quality of a lane's signal, has one layout, Linux's: a grade of 24 bits for every card; "version" counts its revisions.
# Seen:    The version is the process in which the chip is made (40, 28, 16, 7 or 5 nm), and each has a page of its own. At Linux's grade a chip of 7 nm
#          has the initial figure of merit in 8 bits, one of 5 nm in 16; lanes may also come all at once. Linux's height_grade is in no page.
# Matters: A grade that is read with Linux's layout from a current card is another quantity; look at the version first.
source "$(dirname "$0")/lib.sh"
debs trixie linux-headers-6.12.117+deb13-common=6.12.117-1 mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root"/usr/src/*/include/linux/mlx5/mlx5_ifc.h \
    "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import sys

from ifc import Header, Registers

linux, database = Header(sys.argv[1]).fields("slrg_reg"), Registers(sys.argv[2])
version = next(field for field in database.nodes["slrg_reg_ext"].findall("field") if field.get("name") == "version")
print("versions:", version.get("enum"))
page = database.fields("slrg_reg_ext")["page_data"][0]
for node in sorted(database.fields("slrg_reg_page_data_auto_ext")):
    fields = database.fields(node)
    for name in ("grade", "height_grade"):
        at, bits = linux[name]
        there = [f"{field} ({size} bits)" for field, (first, size) in sorted(fields.items(), key=lambda item: item[1])
                 if page + first < at + bits and at < page + first + size]
        print(f"{node} at Linux's {name} ({bits} bits): {', '.join(there) or 'nothing'}")
PY
check <<'OUT'
versions: prod_40nm=0x0,prod_28nm=0x1,prod_16nm=0x3,prod_7nm=0x4,prod_5nm=0x5
slrg_16nm_ext at Linux's grade (24 bits): grade (24 bits)
slrg_16nm_ext at Linux's height_grade (24 bits): height_eo_pos_up (16 bits), height_eo_neg_up (16 bits)
slrg_40nm_28nm_ext at Linux's grade (24 bits): grade (24 bits)
slrg_40nm_28nm_ext at Linux's height_grade (24 bits): nothing
slrg_5nm_ext at Linux's grade (24 bits): fom_mode (4 bits), initial_fom (16 bits)
slrg_5nm_ext at Linux's height_grade (24 bits): last_fom (16 bits), upper_eye (16 bits)
slrg_7nm_ext at Linux's grade (24 bits): fom_mode (3 bits), initial_fom (8 bits)
slrg_7nm_ext at Linux's height_grade (24 bits): upper_eye (8 bits), mid_eye (8 bits), lower_eye (8 bits)
slrg_all_lanes_5nm_ext at Linux's grade (24 bits): fom_lane0 (16 bits), fom_lane1 (16 bits)
slrg_all_lanes_5nm_ext at Linux's height_grade (24 bits): fom_lane2 (16 bits), fom_lane3 (16 bits)
OUT
echo ok
