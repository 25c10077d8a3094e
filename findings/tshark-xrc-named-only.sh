#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A dissector that names the opcodes of XRC reads their extended headers, XRCETH with the number of the shared receive queue.
# Seen:    The name stands in the tree, but the Info column says "Unknown OpCode", and XRCETH, RETH, payload and invariant CRC are one
#          vendor-specific field.
# Matters: Captures of XRC traffic have to be read from the bytes; infiniband.reth.* and the ICRC field stay empty.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce xrc.pcap <<'HEX'
a4 00 ffff 00 000011 00000100  00000055  61626364                                          # XRC SEND Only, shared receive queue 0x55
aa 00 ffff 00 000011 00000101  00000055  0000000000001000 00000077 00000004  61626364      # XRC RDMA WRITE Only
HEX
dissect xrc.pcap -T fields -E header=y -e _ws.col.Info -e infiniband.bth.opcode -e infiniband.reth.va -e infiniband.invariant.crc >"$seen"
dissect xrc.pcap -V | grep -E 'Opcode|Unknown/' | sed 's/^ *//' >>"$seen"
check <<'OUT'
_ws.col.info	infiniband.bth.opcode	infiniband.reth.va	infiniband.invariant.crc
Unknown OpCode QP=0x000011 	164		
Unknown OpCode QP=0x000011 	170		
Opcode: Extended Reliable Connection (XRC) - SEND Only (164)
Unknown/Vendor Specific Data: 00000055616263642324dc1b
Opcode: Extended Reliable Connection (XRC) - RDMA WRITE Only (170)
Unknown/Vendor Specific Data: 0000005500000000000010000000007700000004616263645066b610
OUT
echo ok
