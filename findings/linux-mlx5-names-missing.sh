#!/usr/bin/env bash
# Package: source of Linux 6.12.117 (Debian 13).
# Guess:   The tables that turn codes into words for the log are complete: mlx5_core names all of its commands and events, ib_core all of its events.
# Seen:    Twelve commands are "unknown command opcode", MODIFY_MEMIC (which mlx5_ib sends) and SYNC_STEERING among them. DCT_DRAINED, for which
#          every destroyed target waits, is an "Unrecognized event". ib_core has no words for WQ_FATAL.
# Matters: "unknown command opcode" in a kernel log need not be a foreign command; look the number up.
source "$(dirname "$0")/lib.sh"
core=drivers/net/ethernet/mellanox/mlx5/core
linux $core/cmd.c $core/events.c drivers/infiniband/core/verbs.c include/linux/mlx5/mlx5_ifc.h include/linux/mlx5/device.h include/rdma/ib_verbs.h
python3 - "$tmp/linux" >"$seen" <<'PY'
import re
import sys
from pathlib import Path


def text(path):
    return Path(sys.argv[1], path).read_text(encoding="utf-8")


def function(path, begin):
    return re.search(begin + r".*?\n}", text(path), re.S).group(0)


core = "drivers/net/ethernet/mellanox/mlx5/core/"
commands = re.findall(r"\bMLX5_CMD_OP_(\w+)\s*=", text("include/linux/mlx5/mlx5_ifc.h"))
named = re.findall(r"MLX5_COMMAND_STR_CASE\((\w+)\)", text(core + "cmd.c"))
events = re.findall(r"\bMLX5_EVENT_TYPE_(\w+)\s*=", text("include/linux/mlx5/device.h"))
strings = function(core + "events.c", r"eqe_type_str\(")
verbs = re.search(r"enum ib_event_type {(.*?)};", text("include/rdma/ib_verbs.h"), re.S).group(1)
words = re.search(r"ib_events\[\].*?};", text("drivers/infiniband/core/verbs.c"), re.S).group(0)
print("commands:", *(name for name in commands if name not in named and name != "MAX"))
print("events:", *(name for name in events if f"_{name}:" not in strings and name not in ("NOTIFY_ANY", "MAX")))
print("verbs:", *(name for name in re.findall(r"IB_EVENT_\w+", verbs) if f"[{name}]" not in words))
PY
check <<'OUT'
commands: QUERY_SF_PARTITION MODIFY_MEMIC QUERY_XRQ_DC_PARAMS_ENTRY SET_XRQ_DC_PARAMS_ENTRY QUERY_XRQ_ERROR_PARAMS SET_DELAY_DROP_PARAMS QUERY_PACKET_REFORMAT_CONTEXT SYNC_STEERING GENERATE_WQE GENERAL_START GENERAL_END MOD_UPDATE_HEADER_MODIFY_ARGUMENT
events: XRQ_ERROR DCT_DRAINED DCT_KEY_VIOLATION
verbs: IB_EVENT_WQ_FATAL
OUT
echo ok
