#!/usr/bin/env bash
# Package: ibverbs-providers 56.1 for armhf (Debian 13).
# Guess:   Debian builds rdma-core for 32-bit ARM with the providers of cards that such a machine can have (mlx4, mlx5), without those for x86 alone.
# Seen:    The other way round: mlx4, mlx5 and all that need barriers for DMA are missing, since rdma-core has none for 32-bit ARM. What is left
#          are the two software devices, and hfi1 and ipath, cards of Intel's for x86.
# Matters: On 32-bit ARM there is no library beside ours to compare with, and no barrier of rdma-core's to take over.
source "$(dirname "$0")/lib.sh"
archive deb trixie
foreign=(-o APT::Architecture=armhf -o APT::Architectures=armhf -o Dir::State::lists="$tmp/lists")
mkdir -p "$tmp/lists/partial"
apt-get "${options[@]}" "${foreign[@]}" update >"$tmp/apt.log" 2>&1 || { cat "$tmp/apt.log" >&2; exit 1; }
cd "$tmp"
apt-get "${options[@]}" "${foreign[@]}" download ibverbs-providers=56.1-1 >"$tmp/apt.log" 2>&1 || { cat "$tmp/apt.log" >&2; exit 1; }
dpkg-deb -c ibverbs-providers_*_armhf.deb | grep -oE 'lib[a-z0-9]+-rdmav[0-9]+\.so' | sort >"$seen"
check <<'OUT'
libhfi1verbs-rdmav34.so
libipathverbs-rdmav34.so
librxe-rdmav34.so
libsiw-rdmav34.so
OUT
echo ok
