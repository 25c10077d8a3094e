#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which puts the data of an RDMA READ into the NFS WRITE that they belong to, does the same with an NFS READ: its reply is shown with
#          the data that RDMA WRITEs brought before it.
# Seen:    The WRITE is whole. The reply to a READ is a "Malformed Packet" with the RPC header twice, because NFS reads the shortened message before
#          the data are put in. With a second pass over the file (-2) the same reply is sound, and put together of both packets.
# Matters: All reads of an NFS mount over RDMA look broken in a first reading; count malformed packets with -2.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
nfs='00000000 00000002 000186a3 00000003' none='00000000 00000000 00000000 00000000' list='00000001 55667788 00000100 0000000000003000'
# A connection to port 20049; a WRITE with a read chunk, then a READ with a write chunk, of 256 bytes each.
packets roce nfs.pcap <<HEX
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000  11223344 00000000 0000000001064e51 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184  00 40 8765 000000000000000000000000 0a000001 000000000000000000000000 0a000002 *276
< 64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000  55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002 *276
64 00 ffff 00 000001 00000003  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0014 0000 00000000  11223344 55667788 *276
04 00 ffff 00 000066 80000100  00000007 00000001 00000020 00000000  00000001 00000044 11223344 00000100 0000000000002000 00000000  00000000 00000000  00000007 $nfs 00000007 $none 00000004 01020304 00000000 00000000 00000100 00000001 00000100
< 0c 00 ffff 00 000055 80000200  0000000000002000 11223344 00000100
10 00 ffff 00 000066 00000200  1f000001 *272
< 04 00 ffff 00 000055 80000201  00000007 00000001 00000020 00000000  00000000 00000000 00000000  00000007 00000001 00000000 $none 00000000 00000000 00000100 00000002 0102030405060708
04 00 ffff 00 000066 80000101  00000008 00000001 00000020 00000000  00000000  00000001 $list 00000000 00000000  00000008 $nfs 00000006 $none 00000004 01020304 00000000 00000000 00000100
< 0a 00 ffff 00 000055 00000202  0000000000003000 55667788 00000100 *284
< 04 00 ffff 00 000055 80000203  00000008 00000001 00000020 00000000  00000000  00000001 $list 00000000 00000000  00000008 00000001 00000000 $none 00000000 00000100 00000001 00000100
HEX
for passes in '' -2; do
    echo "tshark $passes"
    dissect nfs.pcap ${passes:+"$passes"} -Y 'frame.number > 3' -T fields -e _ws.col.Protocol -e _ws.col.Info
    dissect nfs.pcap ${passes:+"$passes"} -V | grep -E 'Remote Procedure Call|Malformed Packet: |Frame: .*payload|Data: <' || true
done >"$seen"
check <<'OUT'
tshark 
RPCoRDMA	RDMA_MSG XID 0x7
RRoCE	RC RDMA Read Request QP=0x000055 
NFS	V3 WRITE Call, FH: 0xb63cfbcd Offset: 0 Len: 256 DATA_SYNC
NFS	V3 WRITE Reply (Call In 6) Len: 256 FILE_SYNC
NFS	V3 READ Call, FH: 0xb63cfbcd Offset: 0 Len: 256
RRoCE	RC RDMA Write Only QP=0x000055 
NFS	V3 READ Reply (Call In 8) Len: 256[Malformed Packet]
    [Frame: 4, payload: 0-67 (68 bytes)]
    [Frame: 6, payload: 68-323 (256 bytes)]
Remote Procedure Call, Type:Call XID:0x00000007
    Data: <DATA>
Remote Procedure Call, Type:Reply XID:0x00000007
Remote Procedure Call, Type:Call XID:0x00000008
Remote Procedure Call, Type:Reply XID:0x00000008
Remote Procedure Call, Type:Reply XID:0x00000008
    Data: <DATA><TRUNCATED>
[Malformed Packet: NFS]
tshark -2
RPCoRDMA	RDMA_MSG XID 0x7
RRoCE	RC RDMA Read Request QP=0x000055 
NFS	V3 WRITE Call (Reply In 7), FH: 0xb63cfbcd Offset: 0 Len: 256 DATA_SYNC
NFS	V3 WRITE Reply (Call In 6) Len: 256 FILE_SYNC
NFS	V3 READ Call (Reply In 10), FH: 0xb63cfbcd Offset: 0 Len: 256
RRoCE	RC RDMA Write Only QP=0x000055 
NFS	V3 READ Reply (Call In 8) Len: 256
    [Frame: 4, payload: 0-67 (68 bytes)]
    [Frame: 6, payload: 68-323 (256 bytes)]
Remote Procedure Call, Type:Call XID:0x00000007
    Data: <DATA>
Remote Procedure Call, Type:Reply XID:0x00000007
Remote Procedure Call, Type:Call XID:0x00000008
    [Frame: 10, payload: 0-43 (44 bytes)]
    [Frame: 9, payload: 44-299 (256 bytes)]
Remote Procedure Call, Type:Reply XID:0x00000008
    Data: <DATA>
OUT
echo ok
