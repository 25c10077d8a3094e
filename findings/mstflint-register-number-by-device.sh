#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register databases for adapters, switches and GPUs; headers of Linux 6.12.117 (Debian 13).
# Guess:   The number of an access register means one register in all devices of the vendor, as its layout does: a device has a register or has it not.
#          What mlx5 and mlxsw define under one name has one number.
# Seen:    Six numbers are another register in another kind of device: 0x506e is PPCC, congestion control, in an adapter and PEMI in a switch, and PEMI is
#          0x5075 in the adapter. PMPE, the event of a module, is 0x5010 in Linux's mlx5 and 0x5024 in its mlxsw and in the database for switches.
# Matters: A decoder of register numbers has to know what device it reads; one table for all of them names the wrong register.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
linux include/linux/mlx5/driver.h drivers/net/ethernet/mellanox/mlxsw/reg.h
python3 - "$root/usr/share/mstflint/prm_dbs" "$tmp/linux" >"$seen" <<'PY'
import re
import sys
from xml.etree import ElementTree

numbers = {}
for kind in ("hca", "switch", "gpu"):
    registers = ElementTree.parse(f"{sys.argv[1]}/{kind}/ext/register_access_table.adb").getroot()
    field = registers.find("./node[@name='access_reg_summary_ctrl_ext']/field[@name='id']")
    numbers[kind] = {name: int(number, 0) for name, number in (pair.split("=") for pair in field.get("enum").split(","))}
    print(kind, len(numbers[kind]), "registers")
for path, pattern in (("include/linux/mlx5/driver.h", r"\bMLX5_REG_(\w+)\s*=\s*(0x\w+)"),
                      ("drivers/net/ethernet/mellanox/mlxsw/reg.h", r"#define MLXSW_REG_(\w+)_ID (0x\w+)")):
    with open(f"{sys.argv[2]}/{path}", encoding="utf-8") as file:
        numbers[path.split("/")[-2]] = {name: int(number, 0) for name, number in re.findall(pattern, file.read())}

for number in sorted({number for table in numbers.values() for number in table.values()}):
    names = {kind: name for kind in ("hca", "switch", "gpu") for name, value in numbers[kind].items() if value == number}
    if len(set(names.values())) > 1:
        print(f"{number:#x}", *(f"{kind}: {name}" for kind, name in names.items()))
for name in sorted({name for table in numbers.values() for name in table}):
    values = {kind: table[name] for kind, table in numbers.items() if name in table}
    if len(set(values.values())) > 1:
        print(name, *(f"{kind}: {value:#x}" for kind, value in values.items()))
PY
check <<'OUT'
hca 176 registers
switch 583 registers
gpu 78 registers
0x506e hca: PPCC switch: PEMI
0x7001 hca: POWER_SETTINGS switch: HCAP
0x7002 hca: FP_SL_MAP switch: HTGT
0x902c hca: MVTS gpu: MSLCG
0x9057 hca: MPEINJ switch: MTPPST
0x9165 switch: MCFS gpu: MTBR_V2
PEMI hca: 0x5075 switch: 0x506e
PMPE switch: 0x5024 mlx5: 0x5010 mlxsw: 0x5024
OUT
echo ok
