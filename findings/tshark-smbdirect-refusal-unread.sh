#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   A negotiate response of SMB Direct that refuses the client is shown with its status, STATUS_NOT_SUPPORTED, and the versions that the server has; a request
#          for a range of versions that the server need not know is shown as a request.
# Seen:    The response is taken for SMB Direct only if its negotiated version is 1.0 too. One that refuses with all fields zero but the versions and the status, as
#          Linux's ksmbd sends it, is a plain SEND; so is a request whose maximum version is another than 1.0.
# Matters: The refusals are the messages that are missing in a view of smb_direct; look for the SENDs of 32 bytes.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets roce negotiate.pcap <<'HEX'
04 00 ffff 00 000066 00000100  0001 0001 0000 ff00 50050000 00200000 00000200                                                                       # request, 1.0 to 1.0
04 00 ffff 00 000066 00000101  0001 0002 0000 ff00 50050000 00200000 00000200                                                                       # request, 1.0 to 2.0
< 04 00 ffff 00 000055 00000200  0001 0001 0001 0000 ff00 ff00 00000000 00008000 50050000 00200000 00000200
< 04 00 ffff 00 000055 00000201  0001 0001 0001 0000 ff00 ff00 bb0000c0 00008000 50050000 00200000 00000200
< 04 00 ffff 00 000055 00000202  0001 0001 0000 0000 0000 0000 bb0000c0 00000000 00000000 00000000 00000000  # ksmbd's refusal
HEX
dissect negotiate.pcap -T fields -E header=y -e frame.number -e _ws.col.Protocol -e smb_direct.status -e _ws.col.Info | sed 's/ *$//' >"$seen"
check <<'OUT'
frame.number	_ws.col.protocol	smb_direct.status	_ws.col.info
1	SMBDirect		NegotiateRequest
2	RRoCE		RC Send Only QP=0x000066
3	SMBDirect	0x00000000	NegotiateResponse
4	SMBDirect	0xc00000bb	NegotiateResponse, Error: STATUS_NOT_SUPPORTED
5	RRoCE		RC Send Only QP=0x000055
OUT
echo ok
