#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A dissector that names FLUSH and its FETH reads the selectivity level from bits 5:4, as Linux's soft-RoCE does: 0x11 is selectivity 1
#          (the whole memory region) with placement type 1 of the low bits.
# Seen:    The level is looked for in bits 4:3 and the type in 2:0. Selectivity 1 is shown as 2, a value that has no meaning; and a bit of the
#          selectivity counts as reserved.
# Matters: A capture of FLUSH shows another scope than the one sent; compare the bytes of the FETH.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce flush.pcap <<'HEX'
1c 40 ffff 00 000012 80000007  00000001 0000000000001000 00001234 00000010  # range of addresses, global visibility
1c 40 ffff 00 000012 80000008  00000011 0000000000001000 00001234 00000010  # memory region, global visibility
1c 40 ffff 00 000012 80000009  00000012 0000000000001000 00001234 00000010  # memory region, persistence
HEX
dissect flush.pcap -V | grep -A3 'FETH - ' | sed 's/^ *//' >"$seen"
check <<'OUT'
FETH - FLUSH Extended Transport Header
0000 0000 0000 0000 0000 0000 000. .... = Reserved (27bits): 0
...0 0... = Selectivity Level: 0
.... .001 = Placement Type: 1
--
FETH - FLUSH Extended Transport Header
0000 0000 0000 0000 0000 0000 000. .... = Reserved (27bits): 0
...1 0... = Selectivity Level: 2
.... .001 = Placement Type: 1
--
FETH - FLUSH Extended Transport Header
0000 0000 0000 0000 0000 0000 000. .... = Reserved (27bits): 0
...1 0... = Selectivity Level: 2
.... .010 = Placement Type: 2
OUT
echo ok
