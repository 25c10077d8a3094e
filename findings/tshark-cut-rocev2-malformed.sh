#!/usr/bin/env bash
# Package: tshark and wireshark-common 4.4.19 (Debian 13).
# Guess:   A capture with a snapshot length shows the headers that it has, the data up to the cut, no invariant CRC, and "Packet size limited during capture", as
#          other protocols do.
# Seen:    A packet that is cut within its data is "Invalid Packet Length from LRH! [Malformed Packet]", with RoCEv1 and RoCEv2, where no LRH is: operation and queue pair
#          leave the Info column, and no data is shown. Only if the cut is within a header the packet is of limited size.
# Matters: With the usual snapshot lengths of 96 or 128 bytes each data packet of a capture looks broken; the fields of its headers are right all the same.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1 wireshark-common=4.4.19-0+deb13u1
data=$(printf '6461%.0s' {1..128})
write='0a 00 ffff 00 000066 80000100 0000000000001000 00000077 00000100'
ether='020000000002 020000000001'
gids='00000000000000000000ffff0a000001 00000000000000000000ffff0a000002'
packets ether whole.pcap <<HEX
$ether 0800 4500013c000040004011 0000 0a000001 0a000002 c001 12b7 0128 0000 $write $data 11223344
$ether 86dd 60000000 0128 11 40 $gids c001 12b7 0128 0000 $write $data 11223344
$ether 8915 60000000 0120 1b 40 $gids $write $data 11223344
HEX
fields=(-T fields -E header=y -E separator=' ' -E quote=d -e frame.cap_len -e ip.version -e infiniband.reth.r_key -e data.len -e infiniband.invariant.crc -e _ws.col.Info)
{
    dissect whole.pcap --disable-protocol rpcordma "${fields[@]}"
    for length in 60 96 128; do
        run editcap -s $length /tmp/whole.pcap /tmp/cut.pcap
        dissect cut.pcap --disable-protocol rpcordma "${fields[@]}" | sed 1d
    done
} >"$seen"
check <<'OUT'
frame.cap_len ip.version infiniband.reth.r_key data.len infiniband.invariant.crc _ws.col.info
"330" "4" "0x00000077" "256" "0x11223344" "RC RDMA Write Only QP=0x000066 "
"350" "6" "0x00000077" "256" "0x11223344" "RC RDMA Write Only QP=0x000066 "
"342"  "0x00000077" "256" "0x11223344" "RC RDMA Write Only QP=0x000066 "
"60" "4"    "RC RDMA Write Only QP=0x000066 [Packet size limited during capture]"
"60" "6"    "49153 → 4791 Len=288[Packet size limited during capture]"
"60"     "[Packet size limited during capture]"
"96" "4" "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
"96" "6" "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
"96"  "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
"128" "4" "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
"128" "6" "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
"128"  "0x00000077"   "Invalid Packet Length from LRH! [Malformed Packet]"
OUT
echo ok
