#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   NodeString, the name of a node, which is UTF-8 as the strings of most protocols are to Wireshark, is shown as it was set, "kité-1".
# Seen:    It is ASCII to the dissector: each byte of a letter beyond it becomes a replacement character, in the text and in JSON, in a NodeDescription as well as
#          in the SA's NodeRecord.
# Matters: Two nodes whose names differ in such letters have one name in a capture; match them by GUID.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
smp='64 00 ffff 00 000000 00000001 00000000 00000000  01 01 01 81 0000 0000 0000000000001234'
sa='64 00 ffff 00 000001 00000001 80010000 00000001  01 03 02 81 0000 0000 0000000000001234'
packets ib names.pcap <<HEX
$smp 0010 0000 00000000 *84 *84 6b6974c3a92d31 *276 # kité-1
$sa 0011 0000 00000000 *48 *56 *76 0001 0000 01 01 02 01 0200000000000001 0200000000000001 0200000000000001 0080 1021 00000000 01 0002c9 6b6974c3a92d31 *276
HEX
dlt='uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
dissect names.pcap -o "$dlt" -T json | python3 -c 'import json, sys

def show(layer):
    for key, value in layer.items():
        if isinstance(value, dict):
            show(value)
        elif key.endswith("nodestring"):
            print(key, ascii(value))

for packet in json.load(sys.stdin):
    show(packet["_source"]["layers"])' >"$seen"
check <<'OUT'
infiniband.nodedescription.nodestring 'kit\ufffd\ufffd-1'
infiniband.nodedescription.nodestring 'kit\ufffd\ufffd-1'
OUT
echo ok
