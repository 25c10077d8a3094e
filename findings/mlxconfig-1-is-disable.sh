#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13), mlxconfig's database for adapters (SQLite).
# Guess:   A setting that can be on, off or left to the device has 0 for the device's default or for off, and the number of "enable" is the same for all of
#          them, so that ROCE_CONTROL=1 switches RoCE on.
# Seen:    There are both orders. For autonegotiation and all rights of the host 1 is enable and 2 disable; ROCE_CONTROL=1 switches RoCE off and 2 on, as with
#          the migration of virtual functions and atomics on the card's memory. Two settings of one bit for the internal CPU have 1 for disabled.
# Matters: mlxconfig takes numbers as well as words. Configurations should be written in words.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
python3 - "$root/usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db" >"$seen" <<'PY'
import re
import sqlite3
import sys

orders = {}
for name, text in sqlite3.connect(sys.argv[1]).execute("select mlxconfig_name, textual_values from params where type = 'ENUM' and mlxconfig_name != ''"):
    values = {}
    if text.count("=") > 3:
        continue
    for word, number in (pair.split("=") for pair in text.split(",")):
        kind = re.search(r"(?:^|_)(EN|DIS)ABLED?$", word, re.I)
        if kind:
            values[kind[1].upper()] = int(number, 0)
    if len(values) == 2:
        orders.setdefault((values["DIS"], values["EN"]), set()).add(re.sub(r"_P\d$", "", name))
for (off, on), names in sorted(orders.items()):
    print(f"off {off}, on {on}:", *sorted(names))
PY
check <<'OUT'
off 0, on 1: DPU_RESET_NOTIFICATION_ENABLED
off 1, on 0: INTERNAL_CPU_OFFLOAD_ENGINE INTERNAL_CPU_RSHIM
off 1, on 2: DATA_CRYPTO_ENGINE MEMIC_ATOMIC MKEY_BY_NAME_RANGE PF_VF_BAR2_MODE ROCE_CC_STEERING_EXT ROCE_CONTROL VF_MIGRATION_MODE
off 2, on 1: DBR_LESS_SQP HOST_PRIV_FLASH_ACCESS HOST_PRIV_FW_UPDATE HOST_PRIV_NIC_RESET HOST_PRIV_NV_GLOBAL HOST_PRIV_NV_HOST HOST_PRIV_NV_INTERNAL_CPU HOST_PRIV_NV_PORT HOST_PRIV_PCC_UPDATE HOST_PRIV_RSHIM INT_CPU_AUTO_SHUTDOWN MANAGEMENT_PF_MODE PHY_AUTO_NEG ROCE_CC_CWND_BY_NP_COUNT
OUT
echo ok
