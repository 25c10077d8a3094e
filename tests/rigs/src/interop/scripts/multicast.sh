# rdma-core's mckey and ours in one group. For theirs the kernel joins it on the network device; ours sends IGMP and MLD
# itself.
here="--link $wire --interrupts"
group=239.192.7.1
# member: the kernel has joined the group, whose address it shows with the last byte first.
member='grep -q 0107C0EF /proc/net/igmp'
for amount in '-C 10' '-c 3 -C 20 -S 1000'; do
    serving=1
    client_server 120 "our receiver, rdma-core's sender, $amount" "$ready" "$ours/mckey $here -b 10.0.0.2 -m $group $amount" \
        "$idly mckey -s -b 10.0.0.1 -m $group $amount & sender=\$!
        until_true '$member'; cat /proc/net/igmp; wait \$sender && ! $member"
    serving=0
    for how in "$amount" "$amount -o"; do
        client_server 120 "rdma-core's receiver, our sender, $how" "$member" "mckey -b 10.0.0.1 -m $group $amount" \
            "$ours/mckey $here -s -b 10.0.0.3 -m $group $how"
    done
done
serving=1
client_server 120 "our receiver, rdma-core's sender that only sends" "$ready" "$ours/mckey $here -b 10.0.0.2 -m $group" \
    "$idly mckey -s -o -b 10.0.0.1 -m $group & sender=\$!
    until dead \$sender; do ! $member || exit; usleep 50000; done; wait \$sender"
barrier
case $me in
# rdma_cm has groups of IPv6 on RoCE v1 only, and rdma_rxe has version 2 only.
0) step 60 'Linux joins no group of IPv6' 'mckey -b fd00::1 -m ff15::7:1; [ $? != 0 ]' ;;
1) step 60 'we do' "$ours/mckey $here -b fd00::2 -m ff15::7:1 -C 0" ;;
esac
# Neither machine ends before all of it was recorded.
barrier
