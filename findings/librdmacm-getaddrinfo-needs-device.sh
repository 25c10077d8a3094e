#!/usr/bin/env bash
# Package: librdmacm1t64 56.1 (Debian 13).
# Guess:   rdma_getaddrinfo translates names as getaddrinfo does, so that without an RDMA device it still gives the address of 127.0.0.1 or ::1, and an
#          error of getaddrinfo for a service that does not exist.
# Seen:    It fails with -1 and ENODEV for each of them, a passive address included, before it looks at the name. Only the call without name, service
#          and hints is refused for what it is, with EINVAL.
# Matters: A program cannot check its arguments on a machine without a device; what a drop-in library does there shows only in such a test.
source "$(dirname "$0")/lib.sh"
debs trixie librdmacm1t64=56.1-1 python3=3.13.5-1
mkdir -p "$tmp/share"
cat >"$tmp/share/names.py" <<'PY'
import ctypes
import errno

PASSIVE, NUMERICHOST = 1, 2
rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
for node, service, flags in ((b"127.0.0.1", b"7471", 0), (b"127.0.0.1", b"7471", NUMERICHOST), (b"::1", b"7471", NUMERICHOST), (None, b"7471", PASSIVE), (b"127.0.0.1", b"nosuch", 0), (None, None, None)):
    hints = (ctypes.c_int * 24)(flags or 0)
    result = ctypes.c_void_p()
    ctypes.set_errno(0)
    code = rdma.rdma_getaddrinfo(node, service, None if flags is None else ctypes.byref(hints), ctypes.byref(result))
    print(node, service, f"flags {flags}:", code, errno.errorcode.get(ctypes.get_errno(), 0))
PY
run python3 /tmp/names.py >"$seen"
check <<'OUT'
b'127.0.0.1' b'7471' flags 0: -1 ENODEV
b'127.0.0.1' b'7471' flags 2: -1 ENODEV
b'::1' b'7471' flags 2: -1 ENODEV
None b'7471' flags 1: -1 ENODEV
b'127.0.0.1' b'nosuch' flags 0: -1 ENODEV
None None flags None: -1 EINVAL
OUT
echo ok
