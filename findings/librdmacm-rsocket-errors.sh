#!/usr/bin/env bash
# Package: librdmacm1t64 56.1 (Debian 13).
# Guess:   rsocket() sets the errnos of socket(): EAFNOSUPPORT for a family, EPROTONOSUPPORT or EINVAL for a type or protocol; takes SOCK_NONBLOCK and
#          SOCK_CLOEXEC in the type; and fails with ENODEV on a machine without RDMA devices.
# Seen:    Everything that it does not take is EOPNOTSUPP (95), SOCK_NONBLOCK and SOCK_CLOEXEC among it. A stream socket fails with ENODEV (19), while
#          a datagram socket is made without any device, and rbind of it fails later.
# Matters: Programs preloaded with librspreload compare these numbers to fall back to TCP; a drop-in library has to return the same ones.
source "$(dirname "$0")/lib.sh"
debs trixie librdmacm1t64=56.1-1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/rsocket.py" <<'PY'
import ctypes
import errno
import socket

rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
for name, family, kind, protocol in (
    ("AF_UNIX, SOCK_STREAM", socket.AF_UNIX, socket.SOCK_STREAM, 0),
    ("AF_INET, SOCK_RAW", socket.AF_INET, socket.SOCK_RAW, 0),
    ("AF_INET, SOCK_STREAM, IPPROTO_UDP", socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_UDP),
    ("AF_INET, SOCK_STREAM | SOCK_NONBLOCK", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0),
    ("AF_INET, SOCK_DGRAM | SOCK_CLOEXEC", socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0),
    ("AF_INET, SOCK_STREAM", socket.AF_INET, socket.SOCK_STREAM, 0),
    ("AF_INET, SOCK_DGRAM", socket.AF_INET, socket.SOCK_DGRAM, 0),
    ("AF_INET6, SOCK_DGRAM", socket.AF_INET6, socket.SOCK_DGRAM, 0),
):
    ctypes.set_errno(0)
    number = rdma.rsocket(int(family), int(kind), protocol)
    print(f"rsocket({name}):", "a socket" if number >= 0 else errno.errorcode[ctypes.get_errno()])
PY
run python3 /tmp/rsocket.py >"$seen"
check <<'OUT'
rsocket(AF_UNIX, SOCK_STREAM): ENOTSUP
rsocket(AF_INET, SOCK_RAW): ENOTSUP
rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP): ENOTSUP
rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK): ENOTSUP
rsocket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC): ENOTSUP
rsocket(AF_INET, SOCK_STREAM): ENODEV
rsocket(AF_INET, SOCK_DGRAM): a socket
rsocket(AF_INET6, SOCK_DGRAM): a socket
OUT
echo ok
