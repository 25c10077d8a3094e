#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The messages of iSER that Wireshark has names for, Hello and HelloReply with the fields iser.ird and iser.ord, are dissected on a connection to
#          port 3260, as the PDUs of iSCSI on it are.
# Seen:    Both are data. Only messages of 76 bytes or more are looked at, the length of a header with a PDU of iSCSI; Hello and HelloReply have 28 bytes.
#          The login and the READ on the same connection are shown, with the STag that the target may write to.
# Matters: iser.ird, iser.ord and iser.flags.opcode == 2 match nothing; how many READs the ends agreed on stands in bytes 2 and 3 of the data.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce iser.pcap <<'HEX'
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000  11223344 00000000 0000000001060cbc 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100b7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184  00 40 8765 000000000000000000000000 0a000001 000000000000000000000000 0a000002 *276
< 64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000  55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002 *276
64 00 ffff 00 000001 00000003  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0014 0000 00000000  11223344 55667788 *276
04 00 ffff 00 000066 00000101  20 aa 0010 *40
< 04 00 ffff 00 000055 00000101  30 aa 0004 *40
04 00 ffff 00 000066 00000102  10 000000 00000000 0000000000000000 00000000 0000000000000000  43 87 0000 00000000 400000000000 0000 00000001 0000 0000 00000001 00000000 *88
04 00 ffff 00 000066 00000103  14 000000 00000000 0000000000000000 0000beef 0000001122334455  01 c1 0000 00000000 0000000000000000 00000002 00000200 00000002 00000001 28000000000000000100 *88
HEX
dissect iser.pcap -Y 'infiniband.bth.opcode == 4' -T fields -E header=y -e udp.length -e _ws.col.Protocol -e _ws.col.Info -e iser.read_stag -e iser.ird -e iser.ord -e data.len | sed 's| *\t*$||' >"$seen"
check <<'OUT'
udp.length	_ws.col.protocol	_ws.col.info	iser.read_stag	iser.ird	iser.ord	data.len
52	RRoCE	RC Send Only QP=0x000066 				28
52	RRoCE	RC Send Only QP=0x000055 				28
100	iSCSI	Login Command	0x00000000
100	iSCSI	SCSI Read(10) LUN: 0x00 512 bytes (1 blocks) at LBA: 0x00000000 	0x0000beef
OUT
echo ok
