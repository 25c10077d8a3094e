#!/usr/bin/env bash
# Package: wireshark-common 4.4.19 (Debian 13).
# Guess:   editcap -T, which lists the encapsulation types "infiniband" and "ip-over-ib", writes captures of them, at least as pcap of link types 247 and 242.
# Seen:    Not one of the file formats can be written with either, and the error blames the file that is read, a plain capture of Ethernet.
# Matters: Captures of InfiniBand packets for Wireshark are made by other programs, as ERF or with a user link type, as our scripts do it.
source "$(dirname "$0")/lib.sh"
debs trixie wireshark-common=4.4.19-0+deb13u1
packets ether plain.pcap <<'HEX'
020000000002 020000000001 0800 *64
HEX
cd "$tmp/share"
formats=$(run editcap -F 2>&1 | grep -oP '^ +\K\w+(?= - )')
{
    run editcap -T 2>&1 | grep -E '^ *(infiniband|ip-over-ib) - ' | sed 's/^ *//'
    for type in ether infiniband ip-over-ib; do
        written=
        for format in $formats; do
            if run editcap -T $type -F "$format" /tmp/plain.pcap /tmp/out >log 2>&1; then written+=" $format"; fi
        done
        echo "$type:${written:- none} of $(wc -w <<<"$formats")"
    done
    run editcap -T infiniband -F pcap /tmp/plain.pcap /tmp/out 2>&1 | grep -v Running || true
} >"$seen"
check <<'OUT'
infiniband - InfiniBand
ip-over-ib - IP over InfiniBand
ether: pcap pcapng 5views k12text lanalyzer modpcap netmon1 netmon2 nettl ngsniffer ngwsniffer_1_1 ngwsniffer_2_0 nokiapcap nsecpcap observer rh6_1pcap snoop suse6_3pcap visual of 30
infiniband: none of 30
ip-over-ib: none of 30
editcap: The capture file being read can't be written as a "pcap" file.
OUT
echo ok
