#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The data of a packet are its payload less the pad bytes that the BTH's pad count states.
# Seen:    A 1-byte RDMA WRITE (DMA length 1, pad count 3) shows 4 bytes of data: the pad bytes are part of data.data and data.len.
# Matters: A test that compares payloads out of a capture must cut the pad itself, by infiniband.bth.padcnt.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce pad.pcap <<'HEX'
0a 30 ffff 00 000011 00000100  0000000000001000 00000077 00000001  5a 000000
HEX
dissect pad.pcap -T fields -E header=y -e infiniband.bth.padcnt -e infiniband.reth.dmalen -e data.len -e data.data >"$seen"
check <<'OUT'
infiniband.bth.padcnt	infiniband.reth.dmalen	data.len	data.data
3	1	4	5a000000
OUT
echo ok
