#!/usr/bin/env bash
# Package: cloud-init 25.1.4 (Debian 13).
# Guess:   An interface of type infiniband in cloud-init's network configuration comes out in each of its formats: as TYPE=InfiniBand for sysconfig, as a
#          connection of type infiniband for NetworkManager, with a hardware address in interfaces, and among the ethernets for netplan, which has a
#          key infiniband-mode there.
# Seen:    For netplan it is left out, address and all, with exit code 0 and no warning; the Ethernet interface beside it is there. The three others are as
#          guessed.
# Matters: A machine whose images use netplan starts without its IPoIB addresses, so that routes by IP find no RDMA device.
source "$(dirname "$0")/lib.sh"
debs trixie cloud-init=25.1.4-1+deb13u1 ca-certificates=20250419+deb13u1 bash coreutils dash
ln -sfn dash "$root/usr/bin/sh"
mkdir -p "$tmp/share" "$root/etc/ssl/certs" "$root/etc/netplan"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
cat >"$tmp/share/network.yaml" <<'YAML'
version: 1
config:
  - type: infiniband
    name: ib0
    mac_address: 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01
    subnets:
      - {type: static, address: 10.0.0.1/24}
  - type: physical
    name: eth0
    mac_address: 02:00:00:00:00:02
YAML
for format in sysconfig:rhel network-manager:rhel eni:debian netplan:debian netplan:ubuntu; do
    rm -rf "$tmp/share/out" "$root"/etc/netplan/*
    echo "$format:"
    code=0
    run cloud-init devel net-convert -p /tmp/network.yaml -k yaml -d /tmp/out -D "${format#*:}" -O "${format%:*}" >"$tmp/log" 2>&1 || code=$?
    find "$tmp/share/out" "$root/etc/netplan" -type f -exec cat {} + | grep -iE 'infiniband|ib0|80:00|eth0|transport|10\.0\.0\.1' | sed -E 's/^\s+//' | sort -u
    echo "exit code $code, warnings $(grep -ciE 'warn|skip|ignor' "$tmp/log" || true)"
done >"$seen"
check <<'OUT'
sysconfig:rhel:
DEVICE=eth0
DEVICE=ib0
HWADDR=80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01
IPADDR=10.0.0.1
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="02:00:00:00:00:02", NAME="eth0"
TYPE=InfiniBand
exit code 0, warnings 0
network-manager:rhel:
[infiniband]
address1=10.0.0.1/24
id=cloud-init eth0
id=cloud-init ib0
interface-name=ib0
type=infiniband
exit code 0, warnings 0
eni:debian:
SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="02:00:00:00:00:02", NAME="eth0"
address 10.0.0.1/24
auto ib0
hwaddress 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01
iface eth0 inet manual
iface ib0 inet static
exit code 0, warnings 0
netplan:debian:
eth0:
set-name: eth0
exit code 0, warnings 0
netplan:ubuntu:
eth0:
set-name: eth0
exit code 0, warnings 0
OUT
echo ok
