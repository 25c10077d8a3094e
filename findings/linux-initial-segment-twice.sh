#!/usr/bin/env bash
# Package: headers of Linux 6.12.117 (Debian 13).
# Guess:   mlx5's initial segment is described twice, as bits in mlx5_ifc.h and as words in device.h, and the two agree.
# Seen:    They part at 0x1000. mlx5_ifc.h has the bit that clears the interrupt at 0x100c and a syndrome of 8 bits above a health counter of 24 at
#          0x1010; device.h has a health counter of 32 bits there, the timer at 0x1000 and clr_intx at 0x200c. One ends at 0x400c, one at 0x2010.
# Matters: The driver uses device.h. Its last words lie at 0x2000 of BAR 0, where lspci shows the MSI-X table of ConnectX cards (BAR=0 offset=00002000):
#          a model of the segment must end before them.
source "$(dirname "$0")/lib.sh"
debs trixie linux-headers-6.12.117+deb13-common=6.12.117-1
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$root"/usr/src/*/include/linux/mlx5 >"$seen" <<'PY'
import sys

from ifc import Header, words

bits = Header(f"{sys.argv[1]}/mlx5_ifc.h")
for label, fields in (("mlx5_ifc.h", bits.fields("initial_seg")), ("device.h", words(f"{sys.argv[1]}/device.h", "mlx5_init_seg"))):
    for name, (at, size) in fields.items():
        if not name.startswith(("reserved", "rsvd")) and at >= 0x200 * 8:
            word, shift = at // 32 * 4, 32 - at % 32 - size
            print(f"{label} {word:#x} {name}" + (f" [{shift + size - 1}:{shift}]" if size < 32 else ""))
    at, size = list(fields.values())[-1]
    print(f"{label} ends at {(at + size) // 8:#x}")
PY
check <<'OUT'
mlx5_ifc.h 0x200 health_buffer
mlx5_ifc.h 0x240 no_dram_nic_offset
mlx5_ifc.h 0x100c clear_int [0:0]
mlx5_ifc.h 0x1010 health_syndrome [31:24]
mlx5_ifc.h 0x1010 health_counter [23:0]
mlx5_ifc.h ends at 0x400c
device.h 0x200 health
device.h 0xff8 cmd_exec_to
device.h 0xffc cmd_q_init_to
device.h 0x1000 internal_timer_h
device.h 0x1004 internal_timer_l
device.h 0x1010 health_counter
device.h 0x1040 real_time_h
device.h 0x1044 real_time_l
device.h 0x2000 ieee1588_clk
device.h 0x2008 ieee1588_clk_type
device.h 0x200c clr_intx
device.h ends at 0x2010
OUT
echo ok
