#!/usr/bin/env bash
# Package: python3-pyverbs 56.1 (Debian 13).
# Guess:   The functions of pyverbs that turn flags and codes into text know each one that pyverbs has a constant for: all access flags, the opcodes
#          and statuses of completions, the types of queue pairs by their names in verbs.
# Seen:    Access flags from HUGETLB (0x80) on leave no trace: local write with relaxed ordering is "Local write ". FLUSH and ATOMIC_WRITE completions are
#          an "Unknown CQE opcode", the errors of tag matching an "Unknown CQE status", XRC queue pairs are called XRCD. The state UNKNOWN (7) has a
#          word, any later one prints a Python function's address.
# Matters: A printed memory region of pyverbs does not tell whether it is relaxed or flushable: look at the number.
source "$(dirname "$0")/lib.sh"
debs trixie python3-pyverbs=56.1-1
mkdir -p "$tmp/share"
cat >"$tmp/share/names.py" <<'PY'
import pyverbs.enums as enums
from pyverbs.cq import cqe_opcode_to_str, cqe_status_to_str
from pyverbs.utils import access_flags_to_str, qp_state_to_str, qp_type_to_str

for name in ("ON_DEMAND", "HUGETLB", "FLUSH_GLOBAL", "FLUSH_PERSISTENT", "RELAXED_ORDERING"):
    print("local write,", name, repr(access_flags_to_str(enums.IBV_ACCESS_LOCAL_WRITE | getattr(enums, "IBV_ACCESS_" + name))))
for name in ("RDMA_WRITE", "FLUSH", "ATOMIC_WRITE"):
    print("completion", name, cqe_opcode_to_str(getattr(enums, "IBV_WC_" + name)))
for name in ("RETRY_EXC_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE"):
    print("status", name, cqe_status_to_str(getattr(enums, "IBV_WC_" + name)))
for name in ("RC", "RAW_PACKET", "XRC_SEND", "XRC_RECV"):
    print("type", name, qp_type_to_str(getattr(enums, "IBV_QPT_" + name)))
print("state 7", qp_state_to_str(7))
print("state 8", qp_state_to_str(8).split(" at ")[0])
PY
run python3 /tmp/names.py >"$seen"
check <<'OUT'
local write, ON_DEMAND 'Local write On demand '
local write, HUGETLB 'Local write '
local write, FLUSH_GLOBAL 'Local write '
local write, FLUSH_PERSISTENT 'Local write '
local write, RELAXED_ORDERING 'Local write '
completion RDMA_WRITE RDMA write
completion FLUSH Unknown CQE opcode 8
completion ATOMIC_WRITE Unknown CQE opcode 9
status RETRY_EXC_ERR retry exceeded error
status TM_ERR Unknown CQE status
status TM_RNDV_INCOMPLETE Unknown CQE status
type RC RC
type RAW_PACKET Raw Packet
type XRC_SEND XRCD_SEND
type XRC_RECV XRCD_RECV
state 7 Unknown
state 8 Unknown (<function qp_state_to_str
OUT
echo ok
