# testpmd in a guest. Its commands come through a pipe, and it prints whole lines, in order with the echo of its commands. The
# program that runs it may be before this script.
pmd="LD_LIBRARY_PATH=/dpdk LD_PRELOAD=/dpdk/libstdbuf.so _STDBUF_O=L setsid ${runner:-} /dpdk/dpdk-testpmd -l 0-1
    -d /dpdk/librte_mempool_ring.so.25 -d /dpdk/librte_net_mlx5.so.25"
# For steps.
talk='
# tell COMMAND...: gives testpmd commands, waits until it has executed them (it echoes a line when it reads it), and prints
# what it printed.
tell() {
    count=$(($(cat /run/count) + 1))
    echo $count > /run/count
    dead $(cat /run/pid) && return 1
    before=$(wc -c < /run/testpmd)
    printf "%s\n" "$@" "# $count" > /run/commands
    until_true "grep -q \"# $count\" /run/testpmd || dead \$(cat /run/pid)"
    tail -c "+$((before + 1))" /run/testpmd
    ! dead $(cat /run/pid)
}
# figures PORT: packets and bytes sent, packets and bytes received, and packets that there was no buffer for. What the card cuts
# into segments counts as these.
figures() {
    tell "show port stats $1" | awk "{ for (i = 1; i < NF; i++) value[\$i] = \$(i + 1) }
        END { print value[\"TX-packets:\"], value[\"TX-bytes:\"], value[\"RX-packets:\"], value[\"RX-bytes:\"], value[\"RX-missed:\"] }" | tr " " ,
}
'
# EAL loads nothing from below a directory that everybody may write to.
prepare() {
    step 60 'prepare' 'chmod 755 / && tar -C / -xf /ours/dpdk.tar && mkdir -p /var && ln -s /run /var/run && echo 0 > /run/count && mkfifo /run/commands &&
        echo 96 > /proc/sys/vm/nr_hugepages && mkdir /dev/hugepages && mount -t hugetlbfs huge /dev/hugepages && grep HugePages /proc/meminfo'
}
# start_testpmd NAME ARGUMENTS: those of EAL, and after -- those of testpmd.
start_testpmd() {
    step 100 "$1" ": > /run/testpmd
        sleep 100000 > /run/commands 2> /dev/null & echo \$! > /run/writer
        $(echo $pmd $2) < /run/commands >> /run/testpmd 2>&1 & echo \$! > /run/pid
        until_true 'grep -q testpmd\> /run/testpmd || dead \$(cat /run/pid)'
        cat /run/testpmd; ! dead \$(cat /run/pid)"
}
# end_testpmd NAME
end_testpmd() {
    step 60 "$1" "$talk
        tell quit; kill \$(cat /run/writer); grep -q Bye /run/testpmd"
}

