# TCP and RDMA on one port of ours: smoltcp's TCP with Linux's, and rdma-core's programs meanwhile.
here="--link $wire --interrupts"
for net in 10.0.0. fd00::; do
    serving=1
    client_server 120 "ping, TCP and rdma_client, $net" "$ready" "$ours/tcp_echo $here -b ${net}2 -C 3" "
        head -c 300000 /dev/urandom > /run/sent
        nc ${net}2 7 < /run/sent > /run/back & tcp=\$!
        ping -c 3 ${net}2 && for number in 1 2 3; do rdma_client -s ${net}2 || exit; done
        wait \$tcp && cmp /run/sent /run/back && wc -c /run/back"
    serving=0
    client_server 120 "TCP to Linux, and rdma_server, $net" 'listening 7 && listening_cm' "rdma_server -s ${net}1 & rdma=\$!
        mkfifo /run/echo; exec 3<> /run/echo; nc -l -p 7 <&3 >&3; rm /run/echo; wait \$rdma" \
        "$ours/tcp_echo $here -b ${net}3 -s ${net}1 -C 1 -S 100000"
    serving=1
    client_server 120 "iperf3, $net" "$ready" "$ours/tcp_echo $here -b ${net}2 --iperf3 4" "iperf3_both_ways ${net}2"
done
