#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark dissects every message of the connection manager, and names the reasons of a REJ.
# Seen:    MRA, LAP, APR, SIDR_REQ and SIDR_REP say "Dissector Not Implemented"; the reason of a REJ is a number only. The names are Wireshark's
#          own: MsgRcptAck for MRA, ServiceIDResReqResp for SIDR_REP.
# Matters: A test of UD address resolution or of alternate paths gets nothing out of tshark but the attribute; reasons need our own table.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
{
    for attribute in 0011 0017 0018 0019 001a; do
        echo "64 00 ffff 00 000001 00000001 80010000 00000001  01 07 02 03 0000 0000 0000000000001234 $attribute 0000 00000000 00000001 00000002 *276"
    done
    echo "64 00 ffff 00 000001 00000001 80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0012 0000 00000000 00000001 00000002 00 00 0008 *276"
} | packets roce cm.pcap
dissect cm.pcap -V | grep -E '^ +CM |Reason' | sed 's/^ *//' >"$seen"
check <<'OUT'
CM MsgRcptAck (Dissector Not Implemented)
CM ServiceIDResReq (Dissector Not Implemented)
CM ServiceIDResReqResp (Dissector Not Implemented)
CM LoadAlternatePath (Dissector Not Implemented)
CM AlternatePathResponse (Dissector Not Implemented)
CM ConnectReject
Reason: 0x0008
OUT
echo ok
