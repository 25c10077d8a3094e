#!/usr/bin/env bash
# Package: librte-net-mlx5-25 and dpdk 24.11.8 (Debian 13); source of Linux 6.12.117 (Debian 13) to compare with.
# Guess:   DPDK's mlx5 driver, which works on top of the kernel's and is written by the same vendor, knows each card from ConnectX-4 to ConnectX-8 that
#          mlx5_core of the same Debian drives.
# Seen:    It ends with ConnectX-7 and BlueField-3: ConnectX-8 (0x1023) is not in its list, nor what Linux names after it. Virtual functions from
#          ConnectX-6 Dx on share one number, so a function of ConnectX-8 is taken for one that DPDK knows.
# Matters: On a ConnectX-8 DPDK finds no port though ibv_devices lists the card: it is no peer there, and its silence no fault of the card.
source "$(dirname "$0")/lib.sh"
debs trixie dpdk=24.11.8-0+deb13u1 librte-net-mlx5-25=24.11.8-0+deb13u1 python3-pyelftools libc-bin bash coreutils
run bash -c 'dpdk-pmdinfo.py /usr/lib/*/dpdk/pmds-25.0/librte_net_mlx5.so.25.0' >"$tmp/pmd.json"
linux drivers/net/ethernet/mellanox/mlx5/core/main.c include/linux/pci_ids.h
python3 - "$tmp" >"$seen" <<'PY'
import json
import re
import sys

tmp = sys.argv[1]
driver, = (d for d in json.load(open(f"{tmp}/pmd.json")) if d["name"] == "mlx5_eth")
dpdk = {int(device["device"], 16) for device in driver["pci_ids"]}
macros = dict(re.findall(r"#define (PCI_DEVICE_ID_MELLANOX_\w+)\s+(0x\w+)", open(f"{tmp}/linux/include/linux/pci_ids.h").read()))
table = re.findall(r"PCI_VDEVICE\(MELLANOX, (\w+)\)(?:.*?/\* (.*?) \*/)?", open(f"{tmp}/linux/drivers/net/ethernet/mellanox/mlx5/core/main.c").read())
linux = {int(macros.get(number, number), 16): name or number for number, name in table}
print(f"{len(dpdk)} devices of DPDK, of which Linux has {len(dpdk & linux.keys())}; only in Linux:")
for number in sorted(linux.keys() - dpdk):
    print(f"{number:#06x} {linux[number]}")
print("in both: 0x101e", linux[0x101E] if 0x101E in dpdk else "missing")
PY
check <<'OUT'
18 devices of DPDK, of which Linux has 18; only in Linux:
0x1011 PCI_DEVICE_ID_MELLANOX_CONNECTIB
0x1012 Connect-IB VF
0x1023 ConnectX-8
0x1025 ConnectX-9
0x1027 ConnectX-10
0x2101 ConnectX-10 NVLink-C2C
0xa2df BlueField-4 integrated ConnectX-8 network controller
in both: 0x101e ConnectX Family mlx5Gen Virtual Function
OUT
echo ok
