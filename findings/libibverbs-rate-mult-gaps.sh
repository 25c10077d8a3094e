#!/usr/bin/env bash
# Package: libibverbs1 56.1 (Debian 13).
# Guess:   ibv_rate_to_mult knows each rate that ibv_rate_to_mbps knows, as Linux's ib_rate_to_mult does: 40 for 100 Gb/s, 80 for 200 Gb/s.
# Seen:    It gives -1 for the rates 11 to 18, which are all of FDR and of EDR, 100 and 200 Gb/s among them, and knows the later
#          ones from 28 to 1200 Gb/s. In the other direction 40 becomes IBV_RATE_MAX (0), "no limit".
# Matters: Code that carries a rate as a multiple of 2.5 Gb/s loses every rate of EDR; compare rates in Mb/s.
source "$(dirname "$0")/lib.sh"
debs trixie libibverbs1=56.1-1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/rates.py" <<'PY'
import ctypes

verbs = ctypes.CDLL("libibverbs.so.1")
print("rate: Mb/s and back, multiple and back")
for rate in range(2, 26):
    mbps, multiple = verbs.ibv_rate_to_mbps(rate), verbs.ibv_rate_to_mult(rate)
    print(f"{rate}: {mbps} {verbs.mbps_to_ibv_rate(mbps)}, {multiple} {verbs.mult_to_ibv_rate(multiple)}")
print("40 times 2.5 Gb/s is rate", verbs.mult_to_ibv_rate(40))
PY
run python3 /tmp/rates.py >"$seen"
check <<'OUT'
rate: Mb/s and back, multiple and back
2: 2500 2, 1 2
3: 10000 3, 4 3
4: 30000 4, 12 4
5: 5000 5, 2 5
6: 20000 6, 8 6
7: 40000 7, 16 7
8: 60000 8, 24 8
9: 80000 9, 32 9
10: 120000 10, 48 10
11: 14062 11, -1 0
12: 56250 12, -1 0
13: 112500 13, -1 0
14: 168750 14, -1 0
15: 25781 15, -1 0
16: 103125 16, -1 0
17: 206250 17, -1 0
18: 309375 18, -1 0
19: 28125 19, 11 19
20: 53125 20, 20 20
21: 425000 21, 160 21
22: 637500 22, 240 22
23: 850000 23, 320 23
24: 1275000 24, 480 24
25: -1 0, -1 0
40 times 2.5 Gb/s is rate 0
OUT
echo ok
