#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which has a dissector for NVMe over RDMA, shows queue id and queue sizes of a REQ to port 4420, and the controller's queue size
#          of the REP.
# Seen:    The REP's private data is decoded, and the Connect command after it even with the queue id (1) that only the REQ's private data said; yet
#          the REQ itself shows its private data as raw bytes, and is no packet of NVMe's to the protocol column.
# Matters: hrqsize and hsqsize, which decide how many RECVs the target posts, have to be read from the REQ's bytes, little endian.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce nvme.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000  11223344 00000000 0000000001061144 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184  00 40 8765 000000000000000000000000 0a000001 000000000000000000000000 0a000002  0000 0100 8000 7f00 0000 *276
< 64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000  55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002  0000 8000 *276
64 00 ffff 00 000001 00000003  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0014 0000 00000000  11223344 55667788 *276
04 00 ffff 00 000066 00000100  7f 40 0500 01 *52  0000 0100 7f00 00 00 *76
HEX
dissect nvme.pcap -T fields -E header=y -e _ws.col.Protocol -e _ws.col.Info >"$seen"
dissect nvme.pcap -V | grep -E 'Consumer PrivateData|Cmd Qid|RDMA QP|Fabric Command Type' | sed -E 's/^ *//; s/0{24}0*$/.../' >>"$seen"
check <<'OUT'
_ws.col.protocol	_ws.col.info
RRoCE	CM: ConnectRequest
NVMe Fabrics RDMA	CM: ConnectReply
NVMe Fabrics RDMA	CM: ReadyToUse
NVMe Fabrics RDMA	RC Send Only QP=0x000066 | NVMeOF Connect
IP CM Consumer PrivateData: 0000010080007f...
RDMA QP Controller Receive Queue Size: 128
[Cmd Qid: 1 (IOQ)]
Fabric Command Type: Connect (0x01)
OUT
echo ok
