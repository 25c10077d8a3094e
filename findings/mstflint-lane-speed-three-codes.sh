#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters.
# Guess:   The speed of a lane has one code in all registers that tell or set it, that of PTYS: SDR 0, QDR 2, FDR10 3, EDR 5, HDR 6, NDR 7, XDR 8. So has the
#          protocol of a link: InfiniBand 1, NVLink 2, Ethernet 4.
# Seen:    There are three codes. SLTP, for the settings of a lane, has PTYS's; the test patterns of a port (PPRT) count EDR as 7 and HDR as 9, since 1GE and XAUI are
#          among them, and those of a module (PMPT) have EDR at 5, HDR at 7 and NDR at 8. NVLink is 2 in PTYS and 8 in PDDR.
# Matters: A rate that is taken over from the link's state into a test of its lanes sets another one: EDR's number 5 is FDR10 there.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import re
import sys
from xml.etree import ElementTree

database = ElementTree.parse(sys.argv[1]).getroot()
codes = {"ptys_reg_ext.ib_proto_oper": {}}
for name, value in (pair.split("=") for pair in database.find("./node[@name='ptys_reg_ext']/field[@name='ib_proto_capability']").get("enum").split(",")):
    codes["ptys_reg_ext.ib_proto_oper"][name] = int(value, 0).bit_length() - 1
for register, field in (("sltp_reg_ext", "lane_speed"), ("pprt_reg_ext", "lane_rate_cap"), ("pmpt_reg_ext", "lane_rate_cap")):
    text = database.find(f"./node[@name='{register}']/field[@name='{field}']").get("descr")
    lines = re.findall(r"(?:Bit )?(\d+) ?- ?([^\\]*)", text)
    codes[f"{register}.{field}"] = {name: int(number) for number, line in lines for name in re.findall(r"\b[SDQFEHNX]DR(?:10)?\b", line)}
for place, table in codes.items():
    print(place, *(f"{name} {number}" for name, number in sorted(table.items(), key=lambda pair: pair[1])))
for register, field in (("ptys_reg_ext", "proto_mask"), ("pddr_operation_info_page_ext", "proto_active")):
    print(f"{register}.{field}", database.find(f"./node[@name='{register}']/field[@name='{field}']").get("enum"))
PY
check <<'OUT'
ptys_reg_ext.ib_proto_oper SDR 0 DDR 1 QDR 2 FDR10 3 FDR 4 EDR 5 HDR 6 NDR 7 XDR 8
sltp_reg_ext.lane_speed SDR 0 DDR 1 QDR 2 FDR10 3 FDR 4 EDR 5 HDR 6 NDR 7 XDR 8
pprt_reg_ext.lane_rate_cap SDR 1 DDR 3 QDR 4 FDR10 5 FDR 6 EDR 7 HDR 9 NDR 10 XDR 11
pmpt_reg_ext.lane_rate_cap SDR 1 FDR 4 EDR 5 HDR 7 NDR 8 XDR 9
ptys_reg_ext.proto_mask InfiniBand=0x1,NVLink=0x2,Ethernet=0x4
pddr_operation_info_page_ext.proto_active InfiniBand=0x1,Ethernet=0x4,NVLink=0x8
OUT
echo ok
