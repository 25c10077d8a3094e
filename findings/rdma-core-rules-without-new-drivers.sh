#!/usr/bin/env bash
# Package: rdma-core and ibverbs-providers 56.1 (Debian 13).
# Guess:   rdma-core's udev rules say of each adapter that it has a provider for which protocols it has (ID_RDMA_INFINIBAND, _ROCE, _IWARP, _OPA), and load the kernel
#          modules of that protocol: InfiniBand's for an InfiniBand card, RoCE's for an Ethernet one.
# Seen:    The rules have no driver of irdma's current cards (ice, idpf), none for EFA, erdma, MANA and siw, and "hns" where the kernel's driver is hns3. Each mlx4 and
#          mlx5 device is of both kinds whatever its ports are, so ib_ipoib and ib_umad are loaded on a host with Ethernet ports alone, and a Soft-RoCE device loses its
#          kind with its name (rxe*).
# Matters: The protocol of a port is read from its link layer in the port's attributes, not from udev's properties.
source "$(dirname "$0")/lib.sh"
debs trixie rdma-core=56.1-1 ibverbs-providers=56.1-1
rules=$root/usr/lib/udev/rules.d
{
    echo providers: "$(cd "$root"/usr/lib/*/libibverbs && printf '%s ' *-rdmav34.so | sed 's/-rdmav34.so//g; s/\blib//g')"
    for kind in INFINIBAND OPA IWARP ROCE; do
        echo "$kind: $(grep "ID_RDMA_$kind}=" "$rules/75-rdma-description.rules" | sed -E 's/^[A-Z]+=="([^"]*)".*/\1/' | paste -sd ' ')"
    done
    for driver in ice idpf hns3 efa erdma mana siw; do
        grep -qE "\"$driver\"" "$rules"/*rdma* || echo "in no rule: $driver"
    done
    grep -oE '^.*ID_RDMA_INFINIBAND.*' "$rules/90-rdma-ulp-modules.rules"
    echo "modules for InfiniBand: $(grep -v '^#' "$root/etc/rdma/modules/infiniband.conf" | xargs)"
} >"$seen"
check <<'OUT'
providers: bnxt_re cxgb4 efa erdma hfi1verbs hns ipathverbs irdma mana mlx4 mlx5 mthca ocrdma qedr rxe siw vmw_pvrdma 
INFINIBAND: ib_mthca mlx4_core mlx5_core ib_qib
OPA: hfi1
IWARP: cxgb4 i40e
ROCE: be2net bnxt_en hns mlx4_core mlx5_core qede vmw_pvrdma */infiniband/rxe*
in no rule: ice
in no rule: idpf
in no rule: hns3
in no rule: efa
in no rule: erdma
in no rule: mana
in no rule: siw
TAG+="systemd", ENV{ID_RDMA_INFINIBAND}=="1", ENV{SYSTEMD_WANTS}+="rdma-load-modules@infiniband.service"
modules for InfiniBand: ib_ipoib ib_umad
OUT
echo ok
