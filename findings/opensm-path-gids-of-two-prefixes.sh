#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   With subnet_prefix 0xfec0000000000001, a path is asked for by GIDs of that prefix, and a question by fe80:: GIDs finds no record.
# Seen:    fe80:: is taken for the subnet at either end. The answer has the source GID as it was asked and the destination GID with the subnet's prefix, so
#          that a question with fe80:: twice is answered with GIDs of two prefixes, and the destination is not the one of the question. The reverse does not
#          hold: on a subnet with fe80:: a GID of another prefix finds nothing.
# Matters: A client must not take an answer for a wrong one because its GIDs differ from the question's.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils grep sed
mkdir -p "$tmp/share"
for prefix in 0xfec0000000000001 0xfe80000000000000; do
    echo "subnet_prefix $prefix" | tee "$tmp/share/conf"
    rm -f "$tmp/share/ibsim.in"
    fabric '-F conf' 'for from in fe80: fec0:0:0:1:; do for to in fe80: fec0:0:0:1:; do
        echo "${from}:10:1 ${to}:10:3 ->" $(saquery --sgid-to-dgid ${from}:10:1-${to}:10:3 2>&1 | sed -nE "s/^\s+([sd]gid)\.+/\1 /p" | sort -r)
    done; done' <<<"$two_hosts"
done >"$seen"
check <<'OUT'
subnet_prefix 0xfec0000000000001
fe80::10:1 fe80::10:3 -> sgid fe80::10:1 dgid fec0::1:0:0:10:3
fe80::10:1 fec0:0:0:1::10:3 -> sgid fe80::10:1 dgid fec0::1:0:0:10:3
fec0:0:0:1::10:1 fe80::10:3 -> sgid fec0::1:0:0:10:1 dgid fec0::1:0:0:10:3
fec0:0:0:1::10:1 fec0:0:0:1::10:3 -> sgid fec0::1:0:0:10:1 dgid fec0::1:0:0:10:3
subnet_prefix 0xfe80000000000000
fe80::10:1 fe80::10:3 -> sgid fe80::10:1 dgid fe80::10:3
fe80::10:1 fec0:0:0:1::10:3 ->
fec0:0:0:1::10:1 fe80::10:3 ->
fec0:0:0:1::10:1 fec0:0:0:1::10:3 ->
OUT
echo ok
