#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark, which knows the Sockets Direct Protocol (annex A4 of the architecture), shows the Hello message in the private data of a REQ, the HelloAck in
#          the REP's, nothing of SDP in an RTU, and the messages on the connected queue pairs.
# Seen:    The Hello of a REQ stays raw: its buffers, addresses and versions are in no field. The RTU, whose private data are zeros, is called "SDP Hello" and shown as
#          one with a length of 0. Of the messages, Data of 8 bytes are a plain SEND as long as the dissector of RPC over RDMA is on.
# Matters: A filter for Hello messages finds each connection once, at the wrong message and with no value in it.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
cm='64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234'
packets roce sdp.pcap <<HEX
$cm 0010 0000 00000000 11223344 00000000 0000000000011234 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184 00 00 0040 0000004c 00000000 00000000 10 40 0000 0000 0020 00001000 00001000 8765 0000 000000000000000000000000 0a000001 000000000000000000000000 0a000002 *276
< $cm 0013 0000 00000000 55667788 11223344 00000000 00006600 00000100 12345600 05 06 9d f0 0002c90300000002 01 00 0040 00000030 00000001 00000000 10 40 0000 00001000 *276
$cm 0014 0000 00000000  11223344 55667788 *276
04 00 ffff 00 000066 00000100 ff 00 0040 00000018 00000001 00000001 6461746120646174
04 00 ffff 00 000066 00000101 02 00 0040 00000010 00000003 00000002
HEX
fields=(-T fields -e frame.number -e infiniband_sdp.bsdh.mid -e infiniband_sdp.bsdh.bufs -e infiniband_sdp.bsdh.len -e _ws.col.Info)
{
    dissect sdp.pcap "${fields[@]}"
    echo 'with --disable-protocol rpcordma:'
    dissect sdp.pcap --disable-protocol rpcordma "${fields[@]}" | tail -n 2
} | sed 's/ *$//' >"$seen"
check <<'OUT'
1				CM: ConnectRequest
2	0x01	64	48	CM: ConnectReply(SDP HelloAck)
3	0x00	0	0	CM: ReadyToUse(SDP Hello)
4				RC Send Only QP=0x000066
5	0x02	64	16	RC Send Only QP=0x000066 (SDP DisConn)
with --disable-protocol rpcordma:
4	0xff	64	24	RC Send Only QP=0x000066 (SDP Data)
5	0x02	64	16	RC Send Only QP=0x000066 (SDP DisConn)
OUT
echo ok
