# Virtual functions, each alone in its machine, as a guest has them. What is before this script says what the two are:
# `physical`, `virtual`, or `unaddressed`, which is virtual and was given no MAC address.
mine=$((me + 1))
other=$((peer + 1))
case $me in
0) kind=$first function=$first_function ;;
*) kind=$second function=$second_function ;;
esac
card=0000:01:00.0

step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
# The driver recognizes the kind by its device ID. Only for a physical function it logs the bus's bandwidth and the
# firmware's version, and only one could have virtual functions.
case $kind in
physical)
    step 60 'physical' "grep 0x1017 /sys/bus/pci/devices/$card/device && grep 'available PCIe bandwidth' /run/kernel.log"
    ;;
*)
    step 60 'virtual' "grep 0x1018 /sys/bus/pci/devices/$card/device && grep MT4120 /sys/class/infiniband/mlx5_0/hca_type &&
        grep mlx5_core /run/kernel.log && ! grep 'available PCIe bandwidth' /run/kernel.log &&
        [ ! -e /sys/bus/pci/devices/$card/sriov_totalvfs ] &&
        devlink dev info pci/$card && ! devlink dev info pci/$card | grep -q fw.version"
    ;;
esac
case $kind in
unaddressed)
    step 60 'no MAC' 'grep "Assigned random MAC address" /run/kernel.log'
    ;;
*)
    step 60 'MAC' "grep -i 02:c9:00:00:00:0[12] /sys/class/net/\$(netdev mlx5_core)/address"
    ;;
esac
step 60 'ethtool' 'ethtool -i $(netdev mlx5_core) && ethtool $(netdev mlx5_core) && ethtool -a $(netdev mlx5_core) &&
    ethtool -S $(netdev mlx5_core) | grep packets'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && ip address add fd00::'$mine'/64 dev $card nodad &&
    until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state" && ip address show dev $card'
gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*' && ibv_devinfo -v &&
    for version in 1 2; do gid_index \$version 0000:ffff:c0a8 > /run/v\$version || exit; done"
barrier
step 60 'ping' "ping -c 3 -i 0.2 -w 30 192.168.1.$other && ping -c 3 -i 0.2 -w 30 fd00::$other"
barrier
for version in 1 2; do
    for kind_of_pair in rc uc ud srq; do
        with="-g \$(cat /run/v$version)"
        program="ibv_${kind_of_pair}_pingpong -c -n 100"
        client_server 120 "$program, v$version" 'listening 18515' "$program $with" "$program $with 192.168.1.1"
    done
done
# librdmacm finds its device by the node's GUID, which a virtual function without addresses lacks as well.
if [ $second != unaddressed ]; then
    client_server 60 'rping' listening_cm 'rping -s -C 20 -V' 'rping -c -a 192.168.1.1 -C 20 -V'
    client_server 60 'udaddy' listening_cm 'udaddy -c 10' 'udaddy -c 10 -s 192.168.1.1'
fi
client_server 90 'iperf3' 'listening 5201' 'iperf3 -s -1' 'iperf3 -c 192.168.1.1 -n 4M'

# Every MTU is accepted, but frames have to fit the port's.
step 60 'larger frames' 'ip link set $(netdev mlx5_core) mtu 4200'
barrier
step 60 'larger ping' "ping -c 2 -i 0.2 -w 30 -M do -s 4172 192.168.1.$other"
barrier
step 60 'another MAC' "card=\$(netdev mlx5_core) && ip link set \$card address 02:11:22:33:44:0$mine && ip neigh flush dev \$card"
barrier
step 60 'ping with it' "ip neigh flush dev \$(netdev mlx5_core); ping -c 3 -i 0.2 -w 30 192.168.1.$other"
step 60 'GIDs with it' "until_true 'grep -q 0011:22ff:fe33:440$mine /sys/class/infiniband/mlx5_0/ports/1/gids/*' &&
    until_true 'gid_index 2 0000:ffff:c0a8 > /run/v2'"
barrier
client_server 60 'ibv_rc_pingpong with it' 'listening 18515' 'ibv_rc_pingpong -c -g $(cat /run/v2)' \
    'ibv_rc_pingpong -c -g $(cat /run/v2) 192.168.1.1'
barrier
step 60 'down' 'ip link set $(netdev mlx5_core) down'
step 60 'up again' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier"'
barrier
step 60 'ping again' "ping -c 3 -i 0.2 -w 30 192.168.1.$other"
barrier
# A physical function's driver has the firmware reset itself. A virtual function's driver waits until another driver
# has.
if [ $kind != physical ]; then
    host health $function 1
    step 60 'firmware stops' "until_true 'dmesg | grep -q \"Fatal error\"'"
    host restart $function
    step 120 'firmware again' "until_true 'dmesg | grep -q \"health recovery succeeded\"' &&
        until_true 'netdev mlx5_core > /dev/null' && until_true '[ -e /sys/class/infiniband/mlx5_0 ]'"
    step 60 'up after it' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
        ip address add 192.168.1.'$mine'/24 dev $card'
fi
barrier
step 60 'ping after it' "ping -c 3 -i 0.2 -w 30 192.168.1.$other"
barrier
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
step 60 'reset' "echo 1 > /sys/bus/pci/devices/$card/reset"
step 60 'load again' 'modprobe mlx5_core && netdev mlx5_core'
step 60 'unload again' 'rmmod mlx5_core'
