#!/usr/bin/env bash
# Package: network-manager 1.52.1 (Debian 13), nmcli --offline, which writes a connection's file without a daemon.
# Guess:   An IPoIB interface for P_Key 0x0001 on ib0 is named ib0.8001, with the bit of full members, which Linux sets in the key. A name that does not fit
#          to parent and key is refused, and so is an MTU of 65520 in datagram mode.
# Seen:    The key is kept as it is written, and a name that does not fit is replaced without a word: "ib0.8001" for the key 0x0001 becomes ib0.0001,
#          "storage" becomes ib0.8001, with exit code 0. Datagram mode takes an MTU of 65520. An address of 6 bytes instead of 20 is "not a valid
#          Ethernet MAC", which it is.
# Matters: What addresses IPoIB by the name that it asked for finds no interface. The keys 0x0001 and 0x8001 make two interfaces of one partition.
source "$(dirname "$0")/lib.sh"
debs trixie network-manager=1.52.1-1
add() {
    echo "$*"
    { run nmcli --offline connection add type infiniband con-name c "$@" 2>&1 || echo "exit code $?"; } |
        grep -E 'Error|exit code|^(interface-name|p-key|parent|mtu|transport-mode|mac-address)=' | paste -sd' ' | sed 's/^/  /'
}
{
    add ifname ib0.0001 parent ib0 p-key 0x0001
    add ifname ib0.8001 parent ib0 p-key 0x0001
    add ifname storage parent ib0 p-key 0x8001
    add ifname ib0.8001 p-key 0x8001
    add ifname ib0 mtu 65520 transport-mode connected
    add ifname ib0 mtu 65520 transport-mode datagram
    add ifname ib0 mac 80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01
    add ifname ib0 mac 02:00:00:00:00:01
} >"$seen"
check <<'OUT'
ifname ib0.0001 parent ib0 p-key 0x0001
  interface-name=ib0.0001 p-key=1 parent=ib0 transport-mode=datagram
ifname ib0.8001 parent ib0 p-key 0x0001
  interface-name=ib0.0001 p-key=1 parent=ib0 transport-mode=datagram
ifname storage parent ib0 p-key 0x8001
  interface-name=ib0.8001 p-key=32769 parent=ib0 transport-mode=datagram
ifname ib0.8001 p-key 0x8001
  Error: Error writing connection: parent: InfiniBand P_Key connection did not specify parent interface name exit code 1
ifname ib0 mtu 65520 transport-mode connected
  interface-name=ib0 mtu=65520 transport-mode=connected
ifname ib0 mtu 65520 transport-mode datagram
  interface-name=ib0 mtu=65520 transport-mode=datagram
ifname ib0 mac 80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01
  interface-name=ib0 mac-address=80:00:02:08:FE:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01 transport-mode=datagram
ifname ib0 mac 02:00:00:00:00:01
  Error: failed to modify infiniband.mac-address: '02:00:00:00:00:01' is not a valid Ethernet MAC. exit code 2
OUT
echo ok
