#!/usr/bin/env bash
# Package: mstflint 4.21.0 (Debian 12) and 4.31.0 (Debian 13), their register databases for adapters.
# Guess:   A database of registers only grows: what 4.21 describes, 4.31 describes too, because the cards still answer it.
# Seen:    101 of the adapter's 312 layouts left. Among them is PVLC (the number of virtual lanes of a port), which stayed in the database for switches
#          only; PTYS lost the link partner's advertised protocols, which Linux's header still has, and PPCNT InfiniBand's 64-bit data counters.
# Matters: Absence from the newest database does not mean that a card lacks a register or a field; keep the release that a layout was read from.
source "$(dirname "$0")/lib.sh"
root=$tmp/old debs bookworm mstflint=4.21.0+1-1
debs trixie mstflint=4.31.0+1-4
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$tmp/old" "$root" >"$seen" <<'PY'
import sys

from ifc import Registers

old, new = ({kind: Registers(f"{top}/usr/share/mstflint/prm_dbs/{kind}/ext/register_access_table.adb") for kind in ("hca", "switch")} for top in sys.argv[1:])
gone = old["hca"].nodes.keys() - new["hca"].nodes.keys()
print(f"adapters: {len(old['hca'].nodes)} layouts, then {len(new['hca'].nodes)}; {len(gone)} of the first left")
print("left, but still there for switches:", *sorted(name for name in gone & new["switch"].nodes.keys() if name.startswith("p")))
for release, databases in (("4.21", old), ("4.31", new)):
    for kind, database in databases.items():
        print(f"{release} {kind}: PVLC {'pvlc_reg_ext' in database.nodes}")
for register in ("ptys_reg_ext", "ppcnt_infiniband_general_counter_ext"):
    before, after = old["hca"].fields(register), new["hca"].fields(register)
    print(f"{register} lost:", *(f"{name} ({before[name][0] // 8:#x})" for name in sorted(before.keys() - after.keys(), key=lambda name: before[name])))
PY
check <<'OUT'
adapters: 312 layouts, then 308; 101 of the first left
left, but still there for switches: prm_register_payload_ext pvlc_reg_ext
4.21 hca: PVLC True
4.21 switch: PVLC True
4.31 hca: PVLC False
4.31 switch: PVLC True
ptys_reg_ext lost: reserved_high (0x0) force_tx_aba_param (0x0) eth_proto_lp_valid (0x2c) eth_proto_lp_advertise (0x30)
ppcnt_infiniband_general_counter_ext lost: port_rcv_data_qword_high (0x0) port_rcv_data_qword_low (0x4) port_xmit_data_qword_high (0x8) port_xmit_data_qword_low (0xc)
OUT
echo ok
