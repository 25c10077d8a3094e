#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A dissector that knows the atomic operations of RFC 7306 knows its four opcodes, and shows the value that an Atomic Response returns as one.
# Seen:    Half of the document is there. Immediate Data (8) and Immediate Data with Solicited Event (9) are "Unknown", without a field for their 8
#          bytes. The value that a response returns is labelled "Original Request Identifier", as the request's number before it is.
# Matters: In a trace of iWARP the second identifier of an Atomic Response is the data; take iwarp_rdma.atomic.original_remote_data_value.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets tcp atomics.pcap <<'HEX'
4d504120494420526571204672616d65 40 01 0000                                          # MPA request
< 4d504120494420526570204672616d65 40 01 0000                                        # MPA reply
001a 41 48 00000000 00000000 00000001 00000000  0011223344556677 crc                 # Immediate Data
001a 41 49 00000000 00000000 00000002 00000000  0011223344556677 crc                 # Immediate Data with Solicited Event
0046 41 4a 00000000 00000001 00000001 00000000  00000000 00000007 00000099 0000000000001000 0000000000000001 ffffffffffffffff 0000000000000000 0000000000000000 crc
< 001e 41 4b 00000000 00000003 00000001 00000000  00000007 0000000000000041 crc      # Atomic Response: request 7, value 0x41
HEX
dissect atomics.pcap -Y iwarp_ddp_rdmap -T fields -E header=y -e _ws.col.Info -e iwarp_rdma.atomic.original_request_identifier -e iwarp_rdma.atomic.original_remote_data_value >"$seen"
dissect atomics.pcap -V -Y 'iwarp_rdma.opcode == 8 || iwarp_rdma.opcode == 11' | sed -n '/OpCode/,/^$/p' | sed '/^$/d; s/^ *//' >>"$seen"
check <<'OUT'
_ws.col.info	iwarp_rdma.atomic.original_request_identifier	iwarp_rdma.atomic.original_remote_data_value
40000 > 5555 Unknown 8 [last DDP segment]		
40000 > 5555 Unknown 9 [last DDP segment]		
40000 > 5555 Atomic Request [last DDP segment]		
5555 > 40000 Atomic Response [last DDP segment]	7	65
.... 1000 = OpCode: Unknown (0x8)
.... 1011 = OpCode: Atomic Response (0xb)
Original Request Identifier: 7
Original Request Identifier: 65
OUT
echo ok
