#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), mlxconfig's database for adapters (SQLite).
# Guess:   DCQCN's parameters have the 32 bits in the card's configuration that they have in the congestion commands of Linux's mlx5_ifc.h, and
#          rates up to the port's.
# Seen:    RPG_MAX_RATE has 32 bits, while RATE_TO_SET_ON_FIRST_CNP, RPG_AI_RATE, RPG_HAI_RATE and RPG_MIN_RATE have 17 bits of Mb/s: 131071 Mb/s
#          at most, less than a 200 Gb/s port's rate. RPG_BYTE_RESET has 15 bits (the usual 32767 is its largest value); alpha is of 2^10.
# Matters: A value read by MODIFY_CONG_PARAMS' layout may not fit what the card keeps; a rate on the first CNP above 131 Gb/s cannot be stored.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db" >"$seen" <<'PY'
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
for name, size in database.execute("select mlxconfig_name, size from params where tlv_name = 'nv_roce_cc_ecn' order by mlxconfig_name"):
    dwords, bits = (int(part, 0) for part in size.replace(".", " ").split())
    print(name, dwords * 8 + bits, "bits")
PY
check <<'OUT'
CLAMP_TGT_RATE 1 bits
CLAMP_TGT_RATE_AFTER_TIME_INC 1 bits
CNP_802P_PRIO 3 bits
CNP_DSCP 6 bits
CNP_RES_PRIO_MODE 1 bits
DCE_TCP_G 10 bits
DCE_TCP_RTT 17 bits
INITIAL_ALPHA_VALUE 10 bits
MIN_TIME_BETWEEN_CNPS 17 bits
RATE_REDUCE_MONITOR_PERIOD 17 bits
RATE_TO_SET_ON_FIRST_CNP 17 bits
RPG_AI_RATE 17 bits
RPG_BYTE_RESET 15 bits
RPG_GD 4 bits
RPG_HAI_RATE 17 bits
RPG_MAX_RATE 32 bits
RPG_MIN_DEC_FAC 8 bits
RPG_MIN_RATE 17 bits
RPG_THRESHOLD 5 bits
RPG_TIME_RESET 17 bits
OUT
echo ok
