#!/usr/bin/env bash
# Package: python3-pyroute2 0.7.7 (Debian 13), with iproute2's ip monitor.
# Guess:   pyroute2, which decodes the attributes of an IPoIB interface (P_Key, mode, umcast) by name, shows its hardware address with all 20 bytes, as
#          ip does.
# Seen:    Address and broadcast address of the link are cut to their first 6 bytes, QPN and the begin of the GID. The address of a neighbour is whole,
#          but with a warning that its size is unknown.
# Matters: All interfaces of a fabric with one subnet prefix differ by their QPN only, and the port's GUID is not there; read it from sysfs.
source "$(dirname "$0")/lib.sh"
debs trixie python3-pyroute2=0.7.7-4 iproute2=6.15.0-1
mkdir -p "$tmp/share"
cat >"$tmp/share/read.py" <<'PY'
import struct
from pyroute2.netlink.rtnl.marshal import MarshalRtnl


def attribute(kind, data):
    packed = struct.pack("HH", 4 + len(data), kind) + data
    return packed + bytes(-len(packed) % 4)


def message(kind, data):
    return struct.pack("IHHII", 16 + len(data), kind, 0, 1, 0) + data


INFINIBAND, NEWLINK, NEWNEIGH, TIMESTAMP = 32, 16, 28, 15
address = bytes.fromhex("80000048fe800000000000000002c90300000001")
broadcast = bytes.fromhex("00ffffffff12401b8001000000000000ffffffff")
ipoib = b"".join(attribute(kind, struct.pack("H", value)) for kind, value in ((1, 0x8001), (2, 1), (3, 1)))
link = struct.pack("BxHiII", 0, INFINIBAND, 5, 0x11043, 0) + attribute(3, b"ib0.8001\0") + attribute(1, address) + attribute(2, broadcast)
link += attribute(18, attribute(1, b"ipoib\0") + attribute(2, ipoib))
neighbour = struct.pack("BxxxiHBB", 2, 5, 2, 0, 1) + attribute(1, bytes([10, 0, 0, 2])) + attribute(2, address)
messages = message(NEWLINK, link) + message(NEWNEIGH, neighbour)
with open("/tmp/messages", "wb") as file:
    file.write(message(TIMESTAMP, struct.pack("II", 1, 0)) + messages)
for read in MarshalRtnl().parse(messages):
    for name in ("IFLA_ADDRESS", "IFLA_BROADCAST", "NDA_LLADDR"):
        if read.get_attr(name):
            print(name, read.get_attr(name))
    if read.get_attr("IFLA_LINKINFO"):
        print(read.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA")["attrs"])
PY
{
    echo pyroute2:
    run python3 /tmp/read.py 2>"$tmp/warnings"
    grep -o 'unknown.*size' "$tmp/warnings"
    echo ip:
    run ip -d monitor file /tmp/messages | grep -E 'link/|lladdr|ipoib' | sed -E 's/^\s+|\s+$//g'
} >"$seen"
check <<'OUT'
pyroute2:
IFLA_ADDRESS 80:00:00:48:fe:80
IFLA_BROADCAST 00:ff:ff:ff:ff:12
[('IFLA_IPOIB_PKEY', 32769), ('IFLA_IPOIB_MODE', 'connected'), ('IFLA_IPOIB_UMCAST', 1)]
NDA_LLADDR 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01
unknown or invalid lladdr size
ip:
link/infiniband 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01 brd 00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff
ipoib pkey 0x8001 mode connected umcast 0001
10.0.0.2 dev ib0.8001 lladdr 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01 REACHABLE
OUT
echo ok
