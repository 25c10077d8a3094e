#!/usr/bin/env bash
# Package: source of Linux 6.12.117 (Debian 13).
# Guess:   A QP whose ibv_detach_mcast failed is still attached, and says so: destroying it fails with EBUSY, and detaching may be tried again.
# Seen:    uverbs takes the group off its list before it asks the device, and does not put it back: a second try is EINVAL, and the QP can be destroyed.
# Matters: EINVAL of ibv_detach_mcast does not mean that the group was never attached.
source "$(dirname "$0")/lib.sh"
linux drivers/infiniband/core/uverbs_cmd.c
sed -n '/^static int ib_uverbs_detach_mcast/,/^}/p' "$tmp/linux/drivers/infiniband/core/uverbs_cmd.c" |
    grep -oE 'list_del|list_add_tail|ib_detach_mcast\(qp|ret = -EINVAL|kfree' >"$seen"
check <<'OUT'
list_del
kfree
ret = -EINVAL
ib_detach_mcast(qp
OUT
echo ok
