#!/usr/bin/env bash
# Package: tcpdump 4.99.5 (Debian 13), with tshark 4.4.19.
# Guess:   tcpdump, which decodes the DCBX of IEEE 802.1Qaz, shows the first byte of an ETS configuration as Wireshark does: a bit for Willing, one for
#          the credit-based shaper (CBS), three for the number of traffic classes. It names RoCE's EtherType in the table of applications.
# Seen:    CBS is 2 when Willing is 1, and 0 when it is not; the CBS bit itself is shown nowhere. The applications' protocols are decimal numbers, 35093
#          for 0x8915, and their selectors numbers too.
# Matters: A switch that only asks for a neighbour's settings looks as if it had shapers; take the first byte of the TLV.
source "$(dirname "$0")/lib.sh"
debs trixie tcpdump=4.99.5-2 tshark=4.4.19-0+deb13u1
# OCTETS... : an LLDP frame with these after chassis, port and time to live.
frame() { echo "0180c200000e 020000000001 88cc  0207 04 020000000001  0407 03 020000000001  0602 0078 $* 0000"; }
for first in 03 43 83 c3; do frame "fe19 0080c2 09 $first 00012345 0a141e2800000000 0000020202020000"; done | packets ether ets.pcap
frame 'fe0b 0080c2 0c 00 618915 6412b7' | packets ether app.pcap
{
    echo tcpdump:
    run tcpdump -Z root -vv -r /tmp/ets.pcap 2>/dev/null | grep CBS
    echo tshark:
    dissect ets.pcap -V | grep -E 'Willing|Credit|Maximum Number' | sed 's/^ *//' | paste -d';' - - -
    echo tcpdump:
    run tcpdump -Z root -vv -r /tmp/app.pcap 2>/dev/null | grep 'Protocol ID'
} >"$seen"
check <<'OUT'
tcpdump:
	    Willing:0, CBS:0, RES:0, Max TCs:3
	    Willing:0, CBS:0, RES:0, Max TCs:3
	    Willing:1, CBS:2, RES:0, Max TCs:3
	    Willing:1, CBS:2, RES:0, Max TCs:3
tshark:
0... .... = Willing: No;.0.. .... = Credit-Based Shaper: Not supported;.... .011 = Maximum Number of Traffic Classes: 3 (0x3)
0... .... = Willing: No;.1.. .... = Credit-Based Shaper: Supported;.... .011 = Maximum Number of Traffic Classes: 3 (0x3)
1... .... = Willing: Yes;.0.. .... = Credit-Based Shaper: Not supported;.... .011 = Maximum Number of Traffic Classes: 3 (0x3)
1... .... = Willing: Yes;.1.. .... = Credit-Based Shaper: Supported;.... .011 = Maximum Number of Traffic Classes: 3 (0x3)
tcpdump:
	      Priority: 3, RES: 0, Sel: 1, Protocol ID: 35093
	      Priority: 3, RES: 0, Sel: 4, Protocol ID: 4791
OUT
echo ok
