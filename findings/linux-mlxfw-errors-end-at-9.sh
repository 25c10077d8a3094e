#!/usr/bin/env bash
# Package: Linux 6.12 (Debian 13's linux-source) and mstflint 4.31.0, its register database for adapters.
# Guess:   Linux has a text for each reason for which an adapter refuses a firmware image (MCC's error code) and for each error of a module (the port module event), with
#          the meaning of mstflint's database.
# Seen:    mlxfw knows the codes 0 to 9 of the database's 0 to 0x2b. What is above, such as an image without the secured form (0xA), a forbidden version (0xF)
#          or write-protected flash (0x28), is clipped to 10, "unknown error", and the number is lost. Of the errors of a module, 3 is "No EEPROM/retry timeout" in Linux and
#          a bad or unsupported EEPROM in the database, 5 an unknown identifier against an unsupported cable, and 8, a type that is not enabled, has no text.
# Matters: Flash firmware with a tool that prints the code, and look an error's number up in the database, not its text.
source "$(dirname "$0")/lib.sh"
linux drivers/net/ethernet/mellanox/mlxfw/mlxfw{.h,_fsm.c} drivers/net/ethernet/mellanox/mlx5/core/{fw.c,events.c,lib/events.h}
debs trixie mstflint=4.31.0+1-4
python3 - "$tmp/linux/drivers/net/ethernet/mellanox" "$root/usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb" >"$seen" <<'PY'
import re
import sys
from xml.etree import ElementTree

linux, database = sys.argv[1], ElementTree.parse(sys.argv[2]).getroot()


def text(name):
    with open(f"{linux}/{name}", encoding="utf-8") as file:
        return file.read()


def described(register, field):
    description = database.find(f"./node[@name='{register}']/field[@name='{field}']").get("descr")
    return {int(number, 16): name for number, name in re.findall(r"0x([0-9A-Fa-f]+): ?(\w+)", description)}


codes = described("mcc_reg_ext", "error_code")
states = re.findall(r"MLXFW_FSM_STATE_ERR_(\w+)", re.search(r"enum mlxfw_fsm_state_err \{(.*?)\}", text("mlxfw/mlxfw.h"), re.S)[1])
print("Linux:", *enumerate(states[-2:], len(states) - 2), "database to", hex(max(codes)))
print("clipped:", re.search(r"min_t\(enum mlxfw_fsm_state_err, error_code,\s*(\w+)\)", text("mlx5/core/fw.c"))[1])
print("its text:", re.search(r"case MLXFW_FSM_STATE_ERR_MAX:\s*MLXFW_ERR_MSG\(.*?\"(.*?)\"", text("mlxfw/mlxfw_fsm.c"), re.S)[1])
print("without a text:", *(f"{code:#x} {codes[code]}" for code in (0xA, 0xF, 0x28)))
modules = described("pmaos_reg_ext", "error_type")
numbers = dict(re.findall(r"MLX5_MODULE_EVENT_ERROR_(\w+)\s*= (\w+),", text("mlx5/core/lib/events.h")))
texts = {int(numbers[name], 0): line for name, line in re.findall(r"case MLX5_MODULE_EVENT_ERROR_(\w+):\s*return \"(.*?)\"", text("mlx5/core/events.c"))}
for code in sorted(set(texts) | set(modules)):
    print(f"module error {code:#x}: {texts.get(code, 'none')} / {modules.get(code, 'none')}")
PY
check <<'OUT'
Linux: (9, 'BLOCKED_PENDING_RESET') (10, 'MAX') database to 0x2b
clipped: MLXFW_FSM_STATE_ERR_MAX
its text: unknown error
without a text: 0xa REJECTED_NOT_A_SECURED_FW 0xf REJECTED_FORBIDDEN_VERSION 0x28 REJECTED_FLASH_WP
module error 0x0: Power budget exceeded / Power_Budget_Exceeded
module error 0x1: Long Range for non MLNX cable / Long_Range_for_non_MLNX_cable_or_module
module error 0x2: Bus stuck (I2C or data shorted) / Bus_stuck
module error 0x3: No EEPROM/retry timeout / bad_or_unsupported_EEPROM
module error 0x4: Enforce part number list / Enforce_part_number_list
module error 0x5: Unknown identifier / unsupported_cable
module error 0x6: High Temperature / High_Temperature
module error 0x7: Bad or shorted cable/module / bad_cable
module error 0x8: none / PMD_type_is_not_enabled
module error 0xc: One or more network ports have been powered down due to insufficient/unadvertised power on the PCIe slot / pcie_system_power_slot_Exceeded
module error 0xf: none / Boot_error
module error 0x10: none / Recovery_error
module error 0x11: none / Submodule_failure
OUT
echo ok
