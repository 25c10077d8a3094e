#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The status of an answer of the SA is named: 0x0300 "no records", 0x0001 "busy", 0x000c "unsupported method or attribute"; and an
#          answer with an error shows no record.
# Seen:    Status is a bare number. Each of these answers is dissected as a PathRecord of zeros, in the summary line it looks like a good one, and the
#          field named "Class Specific", which is 0, is not the class-specific half of the status.
# Matters: A failed look-up in a capture is seen by infiniband.mad.status != 0 only, whatever the record below it says.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
for status in 0300 0001 000c; do
    echo "64 00 ffff 00 000001 00000001  80010000 00000001  01 03 02 81 $status 0000 0000000000001234 0035 0000 00000000 01 00 00 00 00000000 00000000 *276"
done | packets ib status.pcap
link='uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
{
    dissect status.pcap -o "$link" -V | grep -E '^ *(Status|Class Specific|DLID|P_Key):' | sed 's/^ *//'
    dissect status.pcap -o "$link" -T fields -e _ws.col.info
    echo "with a status: $(dissect status.pcap -o "$link" -Y 'infiniband.mad.status != 0' | wc -l)"
} >"$seen"
check <<'OUT'
Status: 0x0300
Class Specific: 0x0000
DLID: 0x0000
P_Key: 0x0000
Status: 0x0001
Class Specific: 0x0000
DLID: 0x0000
P_Key: 0x0000
Status: 0x000c
Class Specific: 0x0000
DLID: 0x0000
P_Key: 0x0000
UD Send Only QP=0x000001 SubnAdmGetResp(PathRecord)
UD Send Only QP=0x000001 SubnAdmGetResp(PathRecord)
UD Send Only QP=0x000001 SubnAdmGetResp(PathRecord)
with a status: 3
OUT
echo ok
