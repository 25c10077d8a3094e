# The runner, on Linux's driver, with the addresses that the other side's device has. $libraries is the name of an archive
# among the rig's programs with other libraries than the guest's, and the C library that they need; or empty. $provider is the
# driver of RDMA on the card's network device; $scripts are the files of scripts, and $beside is the one of those that run beside
# them, or empty; $seconds is how long they may take.
link=true
[ $provider = mlx5_ib ] || link='modprobe ib_uverbs && rdma link add rdma0 type rxe netdev $card'
step 60 'load' "modprobe mlx5_core && modprobe $provider && modprobe rdma_ucm && netdev mlx5_core"
step 60 'up' "card=\$(netdev mlx5_core) && ip link set \$card mtu 9000 up && until_true \"grep -q 1 /sys/class/net/\$card/carrier\" &&
    ip address add 10.0.0.1/24 dev \$card && ip address add fd00::1/64 dev \$card nodad && $link &&
    until_true 'grep -q ACTIVE /sys/class/infiniband/*/ports/1/state'"
for gid in 0000:0000:0000:0000:0000:ffff:0a00:0001 fd00:0000:0000:0000:0000:0000:0000:0001; do
    step 60 "GID $gid" "until_true 'grep -q $gid /sys/class/infiniband/*/ports/1/gids/*'"
done
within=
if [ "$libraries" ]; then
    root=/run/root
    within="chroot $root"
    step 60 'libraries' "mkdir $root && tar -x -f /ours/$libraries -C $root && for at in dev proc sys ours; do
            mkdir -p $root/\$at && mount -o bind /\$at $root/\$at || exit 1
        done"
fi
# A process for each hundred scripts: one that dies takes few with it. Those that may run beside others do so in a series of their own.
step "$seconds" 'scripts' "
    cd /ours
    series() {
        cat \$* | awk -v \"to=/run/part-\$1-\" '/^@/ && n++ % 100 == 0 { part = to sprintf(\"%05d\", n / 100) } { print > part }'
        for part in /run/part-\$1-*; do [ ! -e \$part ] || $within /ours/runner < \$part || touch /run/died; done
    }
    [ -z '$beside' ] || series $beside > /run/beside &
    series $scripts
    wait
    [ -z '$beside' ] || cat /run/beside
    [ ! -e /run/died ]"
