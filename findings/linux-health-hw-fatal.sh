#!/usr/bin/env bash
# Package: source of Linux 6.12.117 (Debian 13).
# Guess:   The text that mlx5_core logs for a health syndrome is that of its constant: 0x8 HW_FATAL_ERR is "HW fatal error", 0xb ICM_PAGE_ERR speaks of a
#          page of the card's memory.
# Seen:    0xb is logged as "HW fatal error", with a line feed of its own, and 0x8 as "unrecoverable hardware error". No text speaks of an ICM page.
# Matters: A "HW fatal error" in a kernel log can be a missing or wrong page that the driver gave; look at "synd 0x", not at the words.
source "$(dirname "$0")/lib.sh"
linux drivers/net/ethernet/mellanox/mlx5/core/health.c include/linux/mlx5/mlx5_ifc.h
python3 - "$tmp/linux/drivers/net/ethernet/mellanox/mlx5/core/health.c" "$tmp/linux/include/linux/mlx5/mlx5_ifc.h" >"$seen" <<'PY'
import re
import sys

driver, header = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
constants = dict(re.findall(r"MLX5_INITIAL_SEG_HEALTH_SYNDROME_(\w+)\s*=\s*(0x\w+)", header))
for name, text in re.findall(r'case MLX5_INITIAL_SEG_HEALTH_SYNDROME_(\w+):\s*return (".*?");', driver):
    print(f"{constants[name]} {name}: {text}")
PY
check <<'OUT'
0x1 FW_INTERNAL_ERR: "firmware internal error"
0x7 DEAD_IRISC: "irisc not responding"
0x8 HW_FATAL_ERR: "unrecoverable hardware error"
0x9 FW_CRC_ERR: "firmware CRC error"
0xa ICM_FETCH_PCI_ERR: "ICM fetch PCI error"
0xb ICM_PAGE_ERR: "HW fatal error\n"
0xc ASYNCHRONOUS_EQ_BUF_OVERRUN: "async EQ buffer overrun"
0xd EQ_IN_ERR: "EQ error"
0xe EQ_INV: "Invalid EQ referenced"
0xf FFSER_ERR: "FFSER error"
0x10 HIGH_TEMP_ERR: "High temperature"
0x12 ICM_PCI_POISONED_ERR: "ICM fetch PCI data poisoned error"
OUT
echo ok
