#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The opcodes of the reliable datagram service (0x40 to 0x5d) are read as the architecture has them: RDETH with the end-to-end context, DETH
#          with Q_Key and source queue pair, then the headers of the operation.
# Seen:    The tree says RD, the summary line of the same packet says DC, and the headers are searched 8 bytes further on: context 0x12 is shown as 0x55,
#          which is the source queue pair, and Q_Key and queue pair are made of the data.
# Matters: Numbers in the tree of such a packet are of other places. The header of NVIDIA's dynamic connections, which DC stands for, has no field either.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce rd.pcap <<'HEX'
44 00 ffff 00 000066 00000001  00 000012  00000077 00 000055  61626364 65666768                                        # RD SEND Only
4a 00 ffff 00 000066 00000002  00 000012  00000077 00 000055  0000000000001000 00000088 00000008  61626364 65666768    # RD RDMA WRITE Only
HEX
dissect rd.pcap -T fields -e _ws.col.Info >"$seen"
dissect rd.pcap -V | grep -E 'Opcode|E2E|Queue Key|Source Queue|Virtual Add|Remote Key|DMA Len|Data \(' | sed 's/^ *//' >>"$seen"
check <<'OUT'
DC Send Only QP=0x000066 
DC RDMA Write Only QP=0x000066 
Opcode: Reliable Datagram (RD) - SEND Only (68)
E2E Context: 85
Queue Key: 0x0000000061626364
Source Queue Pair: 0x00666768
Opcode: Reliable Datagram (RD) - RDMA WRITE Only (74)
E2E Context: 85
Queue Key: 0x0000000000000000
Source Queue Pair: 0x00001000
Virtual Address: 0x0000008800000008
Remote Key: 0x61626364
DMA Length: 1701209960 (0x65666768)
OUT
echo ok
