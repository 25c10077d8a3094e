#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   Wireshark reads NVMe over RDMA, so it shows the data of a command wherever they are: the names of a Connect, the ranges of a Dataset Management, the block of a
#          small Write, in RDMA READ responses or in the command's own capsule.
# Seen:    The names of a Connect are shown when the target fetches them with an RDMA READ. Of a capsule 64 bytes are read: data behind them are neither dissected nor shown
#          as bytes, and nothing says that bytes are left, though the SGL ("Offset", 1024 bytes) is there.
# Matters: With Linux small writes and the Connect of an I/O queue go in the capsule: such a Connect names no subsystem in a capture, look for "nqn." in its bytes.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
hex() { printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n'; }
# NUMBER : the handshake of a connection for the queue with this number.
handshake() {
    cat <<HEX
64 00 ffff 00 000001 00000001  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0010 0000 00000000  11223344 00000000 0000000001061144 0002c90300000001 00000000 00000000 00005504 00000004 000000a0 000100a7 ffff 57 f0 ffff ffff 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 00000003 00 40 08 98 *184  00 40 8765 000000000000000000000000 0a000001 000000000000000000000000 0a000002  0000 ${1}00 8000 7f00 0000 *276
< 64 00 ffff 00 000001 00000002  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0013 0000 00000000  55667788 11223344 00000000 00006604 00000000 00000100 04 04 98 f0 0002c90300000002  0000 8000 *276
64 00 ffff 00 000001 00000003  80010000 00000001  01 07 02 03 0000 0000 0000000000001234 0014 0000 00000000  11223344 55667788 *276
HEX
}
names="000102030405060708090a0b0c0d0e0f ffff $(printf '%0476d' 0) $(hex nqn.2014-08.org.nvmexpress:subsystem) $(printf '%0440d' 0) $(hex nqn.2014-08.org.nvmexpress:host)"
{
    handshake 00
    echo "04 00 ffff 00 000066 80000100  7f 40 0000 01 *36  0090000000000000 000400 77000000 40  0000 0000 1f00 00 00 00000000 *76"
    echo "< 0c 00 ffff 00 000055 80000200  0000000000009000 00000077 00000400"
    echo "10 00 ffff 00 000066 00000200  1f000001 $names *1040"
    echo "04 00 ffff 00 000066 80000101  7f 40 0100 01 *36  0000000000000000 00040000 000000 01  0000 0000 1f00 00 00 00000000 *76  $names *1100"
} | packets roce connect.pcap
{
    handshake 01
    echo "04 00 ffff 00 000066 80000100  09 40 0100 01000000 *36  0000000000000000 20000000 000000 01  01000000 04000000 *76  00000000 08000000 0001000000000000 00000000 08000000 0002000000000000"
    echo "04 00 ffff 00 000066 80000101  01 40 0200 01000000 *36  0000000000000000 00020000 000000 01  2000000000000000 00000000 *76  $(hex 'block of 512 bytes') *588"
    echo "04 00 ffff 00 000066 80000102  01 40 0300 01000000 *36  0090000000000000 000200 77000000 40  2000000000000000 00000000 *76"
    echo "< 0c 00 ffff 00 000055 80000200  0000000000009000 00000077 00000200"
    echo "10 00 ffff 00 000066 00000200  1f000001 $(hex 'block of 512 bytes') *528"
} | packets roce io.pcap
for file in connect io; do
    echo "$file:"
    dissect $file.pcap -Y 'frame.number > 3' -T fields -e _ws.col.Info -e udp.length
    dissect $file.pcap -Y 'frame.number > 3' -V | grep -E 'Sub Type|NQN|Host Identifier|Range|Transfer Sent' | sed -E 's/^ */    /; s/0{24}0*$/.../'
done >"$seen"
check <<'OUT'
connect:
RC Send Only QP=0x000066 | NVMeOF Connect	88
RC RDMA Read Request QP=0x000055 | NVMeOF Data Request for Connect	40
RC RDMA Read Response Only QP=0x000066 | NVMeoF Data for Connect, offset 0	1052
RC Send Only QP=0x000066 | NVMeOF Connect	1112
    .... 0000 = Descriptor Sub Type: 0x0 Address
    RDMA Read Transfer Sent from Host […]: 000102030405060708090a0b0c0d0e0fffff...
    Host Identifier: 000102030405060708090a0b0c0d0e0f
    Subsystem NQN: nqn.2014-08.org.nvmexpress:subsystem
    Host NQN: nqn.2014-08.org.nvmexpress:host
    .... 0001 = Descriptor Sub Type: 0x1 Offset
io:
RC Send Only QP=0x000066 | NVMe Dataset Management	120
RC Send Only QP=0x000066 | NVMe Write	600
RC Send Only QP=0x000066 | NVMe Write	88
RC RDMA Read Request QP=0x000055 | NVMeOF Data Request for Write	40
RC RDMA Read Response Only QP=0x000066 | NVMeOF Data for Write, offset 0	540
    .... 0001 = Descriptor Sub Type: 0x1 Offset
    .... 0001 = Descriptor Sub Type: 0x1 Offset
    .... 0000 = Descriptor Sub Type: 0x0 Address
    RDMA Read Transfer Sent from Host […]: 626c6f636b206f6620353132206279746573...
OUT
echo ok
