#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12, with infiniband-diags 56.1.
# Guess:   saquery lists the tables of P_Keys (PKTR) as it lists those of forwarding, lanes and GUIDs: a client that may read one may read all.
# Seen:    Of the tables only those of P_Keys are refused, by the SA's status "invalid request" and as from a "non-trusted requester"; with OpenSM's default key (1)
#          both ports' are listed, and smpquery reads the same table from the port without any key.
# Matters: "Invalid request" of the SA need not be the query's form. Read P_Key tables with smpquery.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'for query in NR PIR SL2VL VLAR LFTR GIR PKTR "PKTR 1" "--smkey 1 PKTR" "--smkey 1 PKTR 1"; do saquery $query >records 2>errors; echo "saquery $query: exit code $?, records $(while read -r line; do case $line in *dump:*) echo;; esac; done <records | wc -l) $(tail -n 1 errors)"; done' \
    'smpquery pkeys 1 1 | head -n 1' <<<"$two_hosts" | sed 's/ *$//' >"$seen"
grep -oE 'ERR .*' "$tmp/share/osm.log" | sort -u >>"$seen" || true
check <<'OUT'
saquery NR: exit code 0, records 1
saquery PIR: exit code 0, records 4
saquery SL2VL: exit code 0, records 12
saquery VLAR: exit code 0, records 2
saquery LFTR: exit code 0, records 1
saquery GIR: exit code 0, records 2
saquery PKTR: exit code 5, records 0 ERROR: Query result returned 0x0200,  SA(SA_ERR_REQ_INVALID)
saquery PKTR 1: exit code 5, records 0 ERROR: Query result returned 0x0200,  SA(SA_ERR_REQ_INVALID)
saquery --smkey 1 PKTR: exit code 0, records 2
saquery --smkey 1 PKTR 1: exit code 0, records 2
   0: 0xffff 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
ERR 4608: Ignoring PKeyRecord request from non-trusted requester with SM_Key 0x0000000000000000
OUT
echo ok
