# Faults of cards and cables while there is traffic.
mine=$((me + 1))
other=$((peer + 1))
state=/sys/class/infiniband/mlx5_0/ports/1/state

load='modprobe mlx5_ib && modprobe ib_uverbs && until_true "netdev mlx5_core > /dev/null"'
up='card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.'$mine'/24 dev $card && until_true "grep -q ACTIVE '$state'" &&
    until_true "gid_index 2 0000:ffff:c0a8 > /dev/null"'
ping="ping -c 1 -w 30 192.168.1.$other"

# Longer than a step may take.
endless='ib_write_bw -F -s 4096 -n 5000000 -x $(gid_index 2 0000:ffff:c0a8)'
# begin_stream PROGRAM: starts it in the background and continues when there is traffic.
begin_stream='$program > /run/stream 2>&1 & stream=$!; wait_for_traffic; kill -0 $stream'

case $boot in
1)
    step 60 'load' "$load"
    step 60 'up' "$up"
    barrier
    step 60 'ping' "$ping"
    barrier

    # Each packet is sent again after four seconds, seven times.
    patient='ib_write_bw -F -s 4096 -n 5000 -u 20 -x $(gid_index 2 0000:ffff:c0a8)'
    client_server 120 'cable out and in' 'listening 18515' "$patient" "program=\"$patient 192.168.1.1\"; $begin_stream || exit
        host link 1 down; until_true 'grep -q DOWN $state'; kill -0 \$stream || exit
        host link 1 up; until_true 'grep -q ACTIVE $state'
        wait \$stream; status=\$?; cat /run/stream; exit \$status"

    # These are sent again for half a second in all.
    client_server_fault 120 'cable out for long' 'listening 18515' "$endless" "program=\"$endless 192.168.1.1\"; $begin_stream || exit
        host link 1 down; wait \$stream; cat /run/stream; grep -q 'Failed status 12' /run/stream; status=\$?
        host link 1 up; until_true 'grep -q ACTIVE $state'; exit \$status"
    barrier
    step 60 'ping over it' "$ping"
    barrier

    client_server_fault 120 'reload' 'listening 18515' "$endless" "program=\"$endless 192.168.1.1\"; $begin_stream || exit
        devlink dev reload pci/0000:01:00.0; status=\$?; kill -KILL \$stream; exit \$status"
    [ "$me" = 0 ] || step 60 'up after a reload' "$load && $up"
    barrier
    step 60 'ping after a reload' "$ping"
    barrier

    client_server_fault 120 'firmware stops' 'listening 18515' "$endless" "program=\"$endless 192.168.1.1\"; $begin_stream || exit
        host health 1 1; until_true 'dmesg | grep -q \"health recovery succeeded\"'; kill -KILL \$stream"
    [ "$me" = 0 ] || step 60 'up after a recovery' "$load && $up"
    barrier
    step 60 'ping after a recovery' "$ping"
    barrier

    if [ "$me" = 0 ]; then
        step 60 'server' "setsid $endless > /dev/null 2>&1 & until_true 'listening 18515'"
        barrier
    else
        barrier
        step 60 'traffic' "setsid $endless 192.168.1.1 > /dev/null 2>&1 & wait_for_traffic"
        restart
    fi
    ;;
2)
    step 60 'load after a boot' "$load && $up"
    send_word booted yes
    ;;
esac
[ "$me" = 1 ] || await booted

# The machine that booted has lost its count of exchanges; both start again here.
exchanges=100
barrier
step 60 'ping after a boot' "$ping"
[ "$me" = 1 ] || step 60 'server ends' 'kill -KILL $(pidof ib_write_bw)'
barrier

# Few and large messages, so that one is in flight and QEMU prints little.
large='ib_write_bw -F -s 33554432 -n 5000 -t 1 -x $(gid_index 2 0000:ffff:c0a8)'
client_server_fault 120 'model dies' 'listening 18515' "$large" "program=\"$large 192.168.1.1\"; $begin_stream || exit
    host die; until_true 'dmesg | grep -q \"Fatal error\"'; kill -KILL \$stream"
step 120 'unload without card' 'until_true "{ cat /run/kernel.log; dmesg; } | grep -q \"Fatal error\""
    rmmod mlx5_ib; rmmod mlx5_core'
