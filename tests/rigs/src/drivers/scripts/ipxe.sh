# Machine 0 is the subnet's manager, and a server for DHCP and HTTP. Machine 1 is iPXE with a script of its own.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_umad && modprobe ib_uverbs && modprobe ib_ipoib'
step 60 'prepare' 'tar -C / -xf /ours/dnsmasq.tar && mkdir -p /run/www /run/osm /var/log /var/cache/opensm &&
    echo "Default=0x7fff, ipoib : ALL=full ;" > /run/osm/partitions && echo root:x:0:0::/: > /etc/passwd &&
    seq 1 400000 > /run/www/file && ip addr add 10.1.0.1/24 dev ib0 && ip link set ib0 up'
# A script for iPXE, with a word at its end that machine 1 sends back when it has executed it.
step 60 'script' '{ echo "#!ipxe"; seq -f "# %.0f" 1 20000; echo "echo @@ send word=$(head -c 16 /dev/urandom | hexdump -ve "/1 \"%02x\"")"; } > /run/www/script &&
    tail -n 1 /run/www/script && wc -c /run/www/script'
step 60 'servers' 'httpd -f -vv -p 80 -h /run/www > /run/http 2>&1 &
    LD_LIBRARY_PATH=/dnsmasq /dnsmasq/dnsmasq --keep-in-foreground --log-facility=- --user=root --port=0 --no-resolv --no-hosts --conf-file=/dev/null \
        --pid-file= --interface=ib0 --dhcp-range=10.1.0.100,10.1.0.100,1h --dhcp-leasefile=/run/leases --log-dhcp > /run/dhcp 2>&1 &
    until_true "listening 80" && until_true "grep -q \"IP range\" /run/dhcp" && cat /run/dhcp'
# iPXE waits for its link: everything that it asks for afterwards is there. It may have ended before the manager has seen
# both ports at once, so that this waits for no more than the manager's beginning.
step 60 'manager' 'setsid opensm -P /run/osm/partitions -f /run/osm/log > /run/osm/out 2>&1 < /dev/null &
    until_true "grep -q MASTER /run/osm/log"; cat /run/osm/out'
await word
export word=$answer
step 60 'word' 'tail -n 1 /run/www/script; [ -n "$word" ] && [ "$(tail -n 1 /run/www/script)" = "echo @@ send word=$word" ]'
step 60 'lease' 'cat /run/dhcp /run/leases; grep -q " 10.1.0.100 " /run/leases'
step 60 'requests' 'cat /run/http; [ "$(grep -c "response:200" /run/http)" = 2 ]'
step 60 'port' 'ibnetdiscover; perfquery'
