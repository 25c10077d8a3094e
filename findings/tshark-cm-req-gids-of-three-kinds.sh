#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The four GIDs of a CM REQ are fields of one kind: those of the alternate path are written, and filtered by, as those of the primary path, on InfiniBand
#          and on RoCEv2.
# Seen:    The alternate ones are strings of 16 bytes. The primary ones are IPv6 addresses on InfiniBand, and on RoCEv2 over IPv4 they are IPv4 addresses in two
#          fields with other names, so that the IPv6 fields are empty there.
# Matters: A filter for a port's GID in REQs needs three forms, and fe80::12 of an alternate path is found only as fe:80:00 and so on.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
# req PRIMARY ALTERNATE : a REQ with a path between the first two GIDs and another one between the other two.
req() {
    echo "64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000" \
        "11111111 00000000 0000000000000100 0002c90300000001 00000000 00000000 00001201 00000001 000000a6 000001e7 ffff 5700" \
        "0001 0002 $1 00000003 00400090  0005 0006 $2 00000003 00400090 *276"
}
link=fe8000000000000000000000000000
mapped=00000000000000000000ffff0a0000
link_type='uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
names=(prim_localgid prim_remotegid prim_localgid_ipv4 prim_remotegid_ipv4 alt_localgid alt_remotegid)
req "${link}01 ${link}02" "${link}11 ${link}12" | packets ib ib.pcap
req "${mapped}01 ${mapped}02" "${mapped}03 ${mapped}04" | packets roce roce.pcap
for file in ib roce; do
    for name in "${names[@]}"; do
        echo "$file $name: $(dissect $file.pcap -o "$link_type" -T fields -e "infiniband.cm.req.$name")"
    done
done >"$seen"
for filter in 'infiniband.cm.req.alt_localgid == fe80::11' 'infiniband.cm.req.alt_localgid == fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:11'; do
    echo "$filter: $(run tshark -r /tmp/ib.pcap -o "$link_type" -Y "$filter" 2>/dev/null | wc -l)"
done >>"$seen"
check <<'OUT'
ib prim_localgid: fe80::1
ib prim_remotegid: fe80::2
ib prim_localgid_ipv4: 
ib prim_remotegid_ipv4: 
ib alt_localgid: fe800000000000000000000000000011
ib alt_remotegid: fe800000000000000000000000000012
roce prim_localgid: 
roce prim_remotegid: 
roce prim_localgid_ipv4: 10.0.0.1
roce prim_remotegid_ipv4: 10.0.0.2
roce alt_localgid: 00000000000000000000ffff0a000003
roce alt_remotegid: 00000000000000000000ffff0a000004
infiniband.cm.req.alt_localgid == fe80::11: 0
infiniband.cm.req.alt_localgid == fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:11: 1
OUT
echo ok
