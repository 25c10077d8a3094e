#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), its register database for adapters; libibmad5 56.1 and the source of Linux 6.12.117 (Debian 13).
# Guess:   PTYS, the register of a port's type and speed, has InfiniBand's widths in PortInfo's code: 1x is 1, 4x is 2, 8x is 4, 12x is 8, and 2x, which came
#          last, is 16.
# Seen:    They are counted up: 1x is bit 0, 2x bit 1, 4x bit 2. The value of 4x is PortInfo's 8x, and that of 2x its 4x. For 8x and 12x the database has no
#          bit, Linux bits 3 and 4. The speeds beside them are no masks of PortInfo's either: FDR10 is between QDR and FDR.
# Matters: A driver translates the width both ways; a value that is handed on unchanged shows a 4x port as 8x and a 2x port as 4x.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4 libibmad5=56.1-1 python3
linux include/linux/mlx5/port.h
mkdir -p "$tmp/share"
cat >"$tmp/share/widths.py" <<'PY'
import ctypes

mad = ctypes.CDLL("libibmad.so.5")
for value in (1, 2, 4, 8, 16):
    text = ctypes.create_string_buffer(200)
    mad.mad_dump_linkwidth(text, 200, (ctypes.c_uint32 * 1)(value), 4)
    print(f"PortInfo LinkWidthActive {value}: {text.value.decode()}")
PY
{
    python3 - "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" <<'PY'
import re
import sys
from xml.etree import ElementTree

database = ElementTree.parse(sys.argv[1]).getroot()
for name in ("ib_link_width_capability", "ib_proto_capability"):
    field = database.find(f"./node[@name='ptys_reg_ext']/field[@name='{name}']")
    print("PTYS", name, *re.findall(r"Bit \d - \w+", field.get("descr")), field.get("enum") or "")
PY
    grep -E 'MLX5_PTYS_WIDTH_\w+\s*= ' "$tmp/linux/include/linux/mlx5/port.h"
    run python3 /tmp/widths.py
} | sed -E 's/[[:space:]]+/ /g; s/^ | $//g' >"$seen"
check <<'OUT'
PTYS ib_link_width_capability Bit 0 - 1x Bit 1 - 2x Bit 2 - 4x
PTYS ib_proto_capability SDR=0x1,DDR=0x2,QDR=0x4,FDR10=0x8,FDR=0x10,EDR=0x20,HDR=0x40,NDR=0x80,XDR=0x100
MLX5_PTYS_WIDTH_1X = 1 << 0,
MLX5_PTYS_WIDTH_2X = 1 << 1,
MLX5_PTYS_WIDTH_4X = 1 << 2,
MLX5_PTYS_WIDTH_8X = 1 << 3,
MLX5_PTYS_WIDTH_12X = 1 << 4,
PortInfo LinkWidthActive 1: 1X
PortInfo LinkWidthActive 2: 4X
PortInfo LinkWidthActive 4: 8X
PortInfo LinkWidthActive 8: 12X
PortInfo LinkWidthActive 16: 2X
OUT
echo ok
