# Those of ibverbs-utils' and perftest's programs that are this script's arguments. They find each other by TCP, over another
# cable. Linux's entry of the table of GIDs has to be looked for, ours is the first one.
step 60 'another network' 'modprobe virtio_pci && modprobe virtio_net && until_true "netdev virtio_net" &&
    card=$(netdev virtio_net) && ip link set $card up && ip address add 192.168.1.'$((me + 1))'/24 dev $card &&
    until_true "ping -c 1 -W 1 192.168.1.'$((peer + 1))'"'
[ "$me" = 0 ] || step 60 'GID' 'until_true "gid_index 2 0000:ffff:0a00:0002 > /run/gid" && cat /run/gid'
barrier
# both_ways NAME PROGRAM GID: each end as server and as client; GID is the program's option for the index.
both_ways() {
    serving=0
    client_server 60 "$1, their client, our server" 'listening 18515' "$ours $2 $3 0" \
        "$2 $3 \$(cat /run/gid) 192.168.1.1"
    serving=1
    client_server 60 "$1, our client, their server" 'listening 18515' "$2 $3 \$(cat /run/gid)" \
        "$ours $2 $3 0 192.168.1.2"
    serving=0
}
for program in "$@"; do
    case $program in
    ibv_*) both_ways "$program" "$program" -g ;;
    *) both_ways "$program" "$program -F" -x ;;
    esac
done
