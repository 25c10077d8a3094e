#!/usr/bin/env bash
# Package: tshark and wireshark-common 4.4.19 (Debian 13).
# Guess:   Captures of link type 247 (LINKTYPE_INFINIBAND of the tcpdump group's list) open in Wireshark, which has had an InfiniBand
#          dissector and an encapsulation named infiniband for long.
# Seen:    "network type 247 unknown or unsupported". editcap lists the encapsulation, yet writes neither pcap nor pcapng with it. The same
#          packets under user link type 147, mapped to the dissector, are read.
# Matters: A tool that writes InfiniBand packets has to use ERF records (as our capture writer does) or a user link type.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
packets ib user0.pcap <<'HEX'
04 00 ffff 00 000011 00000100 00000000 61626364
HEX
python3 - "$tmp/share" <<'PY'
import sys
data = bytearray(open(sys.argv[1] + "/user0.pcap", "rb").read())
data[20:24] = (247).to_bytes(4, "little")
open(sys.argv[1] + "/infiniband.pcap", "wb").write(data)
PY
{
    run tshark -r /tmp/infiniband.pcap 2>&1 | grep -v 'Running as' || true
    run editcap -T help 2>&1 | grep -w infiniband | sed 's/^ *//' || true
    for format in pcap pcapng; do run editcap -T infiniband -F "$format" /tmp/user0.pcap /tmp/out 2>&1 || true; done
    dissect user0.pcap -o 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""' -T fields -e infiniband.lrh.dlid -e infiniband.bth.psn -e infiniband.variant.crc
} >"$seen"
check <<'OUT'
tshark: The file "/tmp/infiniband.pcap" contains record data that TShark doesn't support.
(pcap: network type 247 unknown or unsupported)
infiniband - InfiniBand
editcap: The capture file being read can't be written as a "pcap" file.
editcap: The capture file being read can't be written as a "pcapng" file.
1	256	
OUT
echo ok
