#!/usr/bin/env bash
# Package: Linux 6.12 (Debian 13's linux-source).
# Guess:   The functions that give a text for a code of the kernel's verbs and connection managers know all codes of their enumeration, and "no resources" is such a text
#          in each protocol that has the code.
# Seen:    Completion statuses, events of the RDMA CM and the reasons of a REJ are complete. Of the asynchronous events IB_EVENT_WQ_FATAL has no text, so the log has
#          "unrecognized event" for it, while the trace event of the same enumeration knows the name. NVMe's CM status NO_RSC, which the NVMe specification calls
#          "RDMA_NO_RESOURCES", reads "resource not found". Of iWARP rejections three errnos have texts.
# Matters: A fatal error of a receive work queue is found in logs by "unrecognized event", not by its name.
source "$(dirname "$0")/lib.sh"
linux include/rdma/ib_verbs.h include/rdma/ib_cm.h include/rdma/rdma_cm.h drivers/infiniband/core/{verbs,cm,cma,iwcm}.c include/linux/nvme-rdma.h \
    include/trace/misc/rdma.h
python3 - "$tmp/linux" >"$seen" <<'PY'
import re
import sys


def text(path):
    with open(f"{sys.argv[1]}/{path}", encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def codes(path, enum, prefix):
    return re.findall(rf"\b({prefix}\w+)", re.sub(r"=[^,]*", "", re.search(rf"enum {enum} {{(.*?)}};", text(path), re.S)[1]))


def texts(path, array):
    return dict(re.findall(r"\[(\w+)\]\s*=\s*(\".*?\")", re.search(rf"\b{array}\[\] = {{(.*?)}};", text(path), re.S)[1], re.S))


for header, enum, prefix, source, array in (
    ("include/rdma/ib_verbs.h", "ib_wc_status", "IB_WC_", "drivers/infiniband/core/verbs.c", "wc_statuses"),
    ("include/rdma/ib_verbs.h", "ib_event_type", "IB_EVENT_", "drivers/infiniband/core/verbs.c", "ib_events"),
    ("include/rdma/ib_cm.h", "ib_cm_rej_reason", "IB_CM_REJ_", "drivers/infiniband/core/cm.c", "ibcm_rej_reason_strs"),
    ("include/rdma/rdma_cm.h", "rdma_cm_event_type", "RDMA_CM_EVENT_", "drivers/infiniband/core/cma.c", "cma_events"),
):
    all_codes, known = codes(header, enum, prefix), texts(source, array)
    print(enum, len(all_codes), "codes, without a text:", *([code for code in all_codes if code not in known] or ["none"]))
print("trace events:", *re.findall(r"ib_event_end\((\w+)\)(?=\n\n)", text("include/trace/misc/rdma.h")))
print("iwcm:", texts("drivers/infiniband/core/iwcm.c", "iwcm_rej_reason_strs"))
status = re.findall(r"case (\w+):\s*return (\".*?\")", text("include/linux/nvme-rdma.h"))
print("nvme:", *(pair for pair in status if pair[0] == "NVME_RDMA_CM_NO_RSC"))
PY
check <<'OUT'
ib_wc_status 22 codes, without a text: none
ib_event_type 20 codes, without a text: IB_EVENT_WQ_FATAL
ib_cm_rej_reason 34 codes, without a text: none
rdma_cm_event_type 16 codes, without a text: none
trace events: WQ_FATAL
iwcm: {'ECONNRESET': '"reset by remote host"', 'ECONNREFUSED': '"refused by remote application"', 'ETIMEDOUT': '"setup timeout"'}
nvme: ('NVME_RDMA_CM_NO_RSC', '"resource not found"')
OUT
echo ok
