# Which frames the card takes, and where they go: frames that the port received and the driver did not were filtered.
mine=$((me + 1))
other=$((peer + 1))

step 60 'load' 'modprobe mlx5_core && netdev mlx5_core && modprobe 8021q'
step 60 'up' 'card=$(netdev mlx5_core) && for new in all default; do echo 1 > /proc/sys/net/ipv6/conf/$new/disable_ipv6; done && ip link set $card up &&
    until_true "grep -q 1 /sys/class/net/$card/carrier" && ip address add 192.168.1.'$mine'/24 dev $card &&
    arp -s 192.168.1.'$other' 02:c9:00:00:00:0'$other' && arp -an'
barrier
step 60 'ping' "ping -c 2 -i 0.2 -w 30 192.168.1.$other"

# Frames that the port got, and those that the driver got.
counted='counted() { ethtool -S $(netdev mlx5_core) | awk "\$1 == \"rx_packets_phy:\" { port = \$2 } \$1 == \"rx_packets:\" { driver = \$2 } END { print port, driver }"; }'
# sent NAME COMMAND WANTED: machine 0 sends five frames, of which so many reach machine 1's driver.
sent() {
    barrier
    [ "$me" = 0 ] || step 30 "before $1" "$counted; counted | tee /run/before"
    barrier
    [ "$me" = 1 ] || step 60 "$1" "$2"
    barrier
    [ "$me" = 0 ] || step 60 "after $1" "$counted
        right() {
            counted > /run/after
            awk '{ port[NR] = \$1; driver[NR] = \$2 } END { exit port[2] - port[1] != 5 || driver[2] - driver[1] != $3 }' \
                /run/before /run/after
        }
        within 10 right; right=\$?; cat /run/after; exit \$right"
}
# The driver changes its filters in the background, and does not report when it is done.
settle='sleep 2'
card='card=$(netdev mlx5_core)'

[ "$me" = 1 ] || step 60 'neighbours' "$card; ip link add link \$card name lane type vlan id 7 && ip link set lane up &&
    ip address add 192.168.7.1/24 dev lane
    arp -s 192.168.7.2 02:c9:00:00:00:02; arp -s 192.168.7.3 02:c9:00:00:00:77; arp -s 192.168.1.3 02:c9:00:00:00:77; arp -an"
sent 'another MAC address' 'ping -c 5 -i 0.1 -W 1 192.168.1.3; true' 0
sent 'an unknown VLAN' 'ping -c 5 -i 0.1 -W 1 192.168.7.2; true' 0
sent 'an unknown group' 'ip route add 224.0.0.0/4 dev $(netdev mlx5_core); ping -c 5 -i 0.1 -W 1 224.1.2.3; true' 0
[ "$me" = 0 ] || step 60 'all multicast' "$card; echo 0x1203 > /sys/class/net/\$card/flags; $settle"
sent 'a group' 'ping -c 5 -i 0.1 -W 1 224.1.2.3; true' 5
[ "$me" = 0 ] || step 60 'promiscuous' "$card; ethtool -K \$card rxvlan off; echo 0x1103 > /sys/class/net/\$card/flags; $settle"
sent 'to the promiscuous' 'ping -c 5 -i 0.1 -W 1 192.168.1.3; true' 5
sent 'to the promiscuous in a VLAN' 'ping -c 5 -i 0.1 -W 1 192.168.7.3; true' 5
[ "$me" = 0 ] || step 60 'not promiscuous' "$card; echo 0x1003 > /sys/class/net/\$card/flags; $settle"
sent 'another MAC address again' 'ping -c 5 -i 0.1 -W 1 192.168.1.3; true' 0
[ "$me" = 0 ] || step 60 'a VLAN' "$card; ip link add link \$card name lane type vlan id 7 && ip link set lane up; $settle"
sent 'a known VLAN' 'ping -c 5 -i 0.1 -W 1 192.168.7.2; true' 5

step 60 'rules' "$card; ethtool -K \$card ntuple on && ethtool -k \$card | grep ntuple"
[ "$me" = 0 ] || step 60 'drop' "$card; ethtool -N \$card flow-type ip4 src-ip 192.168.1.1 action -1 loc 5 &&
    ethtool -N \$card flow-type udp4 dst-port 5000 action 1 loc 6 && ethtool -n \$card"
sent 'to be dropped' 'ping -c 5 -i 0.1 -W 1 192.168.1.2; true' 0
[ "$me" = 0 ] || step 60 'redirect' "$card; ethtool -N \$card delete 5 && ethtool -N \$card flow-type ip4 src-ip 192.168.1.1 action 1 loc 5 && ethtool -n \$card
    ethtool -S \$card | awk '\$1 == \"rx1_packets:\" { print \$2 }' > /run/ring"
sent 'to the second ring' 'ping -c 5 -i 0.1 -W 10 192.168.1.2' 5
[ "$me" = 0 ] || step 60 'the second ring' "$card; ethtool -S \$card | awk '\$1 == \"rx1_packets:\" { print \$2 }' | tee -a /run/ring
    awk '{ seen[NR] = \$1 } END { exit seen[2] - seen[1] != 5 }' /run/ring"
[ "$me" = 0 ] || step 60 'no rules' "$card; ethtool -N \$card delete 5 && ethtool -N \$card delete 6 && ethtool -K \$card ntuple off"
sent 'without rules' 'ping -c 5 -i 0.1 -W 10 192.168.1.2' 5
barrier
step 60 'unload' 'rmmod mlx5_core'
