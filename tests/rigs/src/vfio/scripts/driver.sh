# One machine, two functions on one cable, each in its own IOMMU group. $interface says through which of VFIO's
# interfaces functions are opened: nothing decides it but what the kernel has. $iommufd is what a search for iommufd's
# file ends with then.
case $interface in
group) pools='0 64' iommufd=1 skip= ;;
# This interface has no limit on the number of mappings.
cdev) pools=64 iommufd=0 skip='--skip the_limit_on_mappings' ;;
esac
first=0000:01:00.0
second=0000:02:00.0
step 60 'modules' 'modprobe vfio_iommu_type1 && modprobe vfio-pci && ls /sys/kernel/iommu_groups/*/devices'
step 60 'not bound' "! /ours/devinfo --device vfio:$first"
step 60 'what binding takes' "/ours/devinfo --device vfio:$first --bind --dry-run && [ ! -e /sys/bus/pci/devices/$first/driver ]"
step 60 'bind' "for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"
step 60 'devinfo' "BAREVERBS_DEVICE=vfio:$first RUST_LOG=info /ours/devinfo"
step 60 'the same for programs' "/ours/devinfo --device vfio:$second --json"
step 60 'self test' "/ours/devinfo --device vfio:$first --selftest"
step 60 'self test with no cable' "host link 0 down; until_true '/ours/devinfo --device vfio:$first | grep -q PORT_DOWN' &&
    /ours/devinfo --device vfio:$first --selftest; status=\$?; host link 0 up; exit \$status"

# The file for a bug report makes a model that does the same, also of a card that fails.
step 180 'report' "/ours/devinfo --device vfio:$first --report /run/card.tar.zst"
step 120 'a card of the report' "/ours/profile --from /run/card.tar.zst > /run/card &&
    /ours/devinfo --card /run/card --selftest && /ours/rping --card /run/card -C 20"
step 120 'report of a failure' "host fault command=CREATE_EQ,status=NO_RES,syndrome=0x3c5a71,function=0
    /ours/devinfo --device vfio:$first --report /run/failed.tar.zst"
step 60 'the same failure' '/ours/profile --replay /run/failed.tar.zst'

# The conformance test of the platform: polled and by interrupts, with huge pages and without.
for pages in 0 64; do
    step 120 "platform, $pages huge pages" "echo $pages > /proc/sys/vm/nr_hugepages; [ \$(cat /proc/sys/vm/nr_hugepages) = $pages ] &&
        /ours/devinfo --device vfio:$second --conformance"
done

# The driver's tests, on one function.
step 240 'tests' "BAREVERBS_DEVICE=vfio:$first BAREVERBS_OTHER_DEVICE=vfio:$second \
    /ours/on_device --ignored --test-threads=1 $skip"

# A function whose resets are taken away is not opened: the kernel does not reset its bus then, either.
alone=/sys/bus/pci/devices/$first/reset_method
step 60 'no reset of its own' "echo > $alone && ! /ours/devinfo --device vfio:$first"
step 60 'a reset of its own' "echo default > $alone && cat $alone && RUST_LOG=warn /ours/devinfo --device vfio:$first > /dev/null"

for pages in $pools; do
    for wait in '' ' --interrupts'; do
        what="$pages huge pages$wait"
        step 60 "pool of $pages$wait" "echo $pages > /proc/sys/vm/nr_hugepages; [ \$(cat /proc/sys/vm/nr_hugepages) = $pages ]"
        step 120 "one process, $what" \
            "/ours/rping --device vfio:$first,vfio:$second -C 200 --json$wait"
        step 120 "one process, large messages, $what" \
            "/ours/rping --device vfio:$first,vfio:$second -C 10 -S 1000000 --json$wait"
        client_server 120 "two processes, $what" 'grep -q listening /run/server' \
            "/ours/rping -s --device vfio:$first -a 10.0.0.1$wait" \
            "/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 -C 200 -V --json$wait"
    done
done
step 180 'perf' "/ours/perf --device vfio:$first,vfio:$second -n 20 -S 8,4096 -t 1,16"
client_server 180 'perf in two processes' 'grep -q listening /run/server' \
    "/ours/perf -s --device vfio:$first -a 10.0.0.1" \
    "/ours/perf -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 -n 20 -S 8,4096 -t 1,16 --tests bw,lat,load -b"

# A program that waits for a connection or a message sleeps: it wakes once a second to check the card's health. The
# silent client is a stopped one; the server asks three times for its address before it gives up: five wakes more.
serve=": > /run/idle; /ours/rping -s --device vfio:$first -a 10.0.0.1 --interrupts > /run/idle & p=\$!
    until_true 'grep -q listening /run/idle'"
connect="/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 --interrupts -v \
    -C 1000000 > /run/client & c=\$!; until_true 'grep -q \"ping 3:\" /run/client'; kill -STOP \$c"
# Wakes, and nanoseconds on a processor; the seconds begin before the first look, and end behind the second one.
rest="up() { awk '{ print \$1 }' /proc/uptime; }
    look() { awk '/^voluntary_ctxt_switches/ { print \$2 }' /proc/\$p/status; cut -d ' ' -f 1 /proc/\$p/schedstat; }
    sleep 2; begin=\$(up); before=\$(look); sleep 10; after=\$(look)
    echo \$begin \$before \$(up) \$after | awk '{ s = \$4 - \$1; w = \$5 - \$2; t = (\$6 - \$3) / 1e9
        printf \"idle: %d wakes and %.4f s of processor time in %.1f s\\n\", w, t, s
        exit s < 10 || w > s + 7 || t > s / 10 }'; status=\$?"
step 60 'interrupts' "$serve; grep vfio /proc/interrupts; status=\$?; kill \$p; wait \$p; exit \$status"
step 60 'idle until a client comes' "$serve; $rest; kill \$p; wait \$p; exit \$status"
step 60 'idle until a message comes' "$serve; $connect; $rest; kill -KILL \$c \$p; wait \$c; wait \$p; exit \$status"
step 60 'no pool' 'echo 0 > /proc/sys/vm/nr_hugepages'

# Which interface that was, by the files that a process has open.
step 60 'interface' "$serve; ls -l /proc/\$p/fd | grep -o '/dev/iommu\|/dev/vfio/.*'; ls -l /proc/\$p/fd | grep -q /dev/iommu
    [ \$? = $iommufd ]; status=\$?; kill \$p; wait \$p; exit \$status"
if [ "$interface" = cdev ]; then
    step 60 'the other interface, by name' "BAREVERBS_VFIO=group /ours/rping --device vfio:$first,vfio:$second -C 20 --json"
    step 60 'one interface each' "BAREVERBS_VFIO=group; export BAREVERBS_VFIO; $serve; export BAREVERBS_VFIO=cdev
        ! /ours/devinfo --device vfio:$first; status=\$?
        /ours/devinfo --device vfio:$second > /dev/null || status=1; kill \$p; wait \$p; exit \$status"
fi

# What a running process still holds of a device that it has closed, as other processes see it. devinfo closes the
# device before it prints, and here its output goes into a full pipe, so that the process stays.
ask 0 reach
holds="grep -q vfio /proc/\$p/maps || ls -l /proc/\$p/fd | grep -q vfio || grep -E '^Vm(Lck|Pin):' /proc/\$p/status | grep -vq ' 0 kB'"
is_master="[ \$((0x\$(hexdump -s 4 -n 1 -e '1/1 \"%02x\"' /sys/bus/pci/devices/$first/config) & 4)) != 0 ]"
step 60 'held' "[ $answer = 0 ] || exit
    setsid /ours/rping -s --device vfio:$first -a 10.0.0.1 > /run/held 2>&1 & p=\$!
    until_true 'grep -q listening /run/held'; echo \$p > /run/holder; $holds && $is_master"
ask 0 reach
held=$answer
ask 0 master
step 60 'held, as the card sees it' "p=\$(cat /run/holder); kill -KILL \$p; until_true 'dead \$p'
    echo $held bytes in reach, bus master $answer; [ $held != 0 ] && [ $answer = 1 ]"
step 60 'let go' "mkfifo /run/full; exec 3<> /run/full; head -c 65536 /dev/zero >&3
    setsid /ours/devinfo --device vfio:$first >&3 2>&1 & p=\$!; echo \$p > /run/holder
    until_true 'grep -q pipe_write /proc/\$p/wchan'; grep -E '^(Name|Vm(Lck|Pin)):' /proc/\$p/status
    ! { $holds; } && ! $is_master"
ask 0 reach
held=$answer
ask 0 master
step 60 'let go, as the card sees it' "kill -0 \$(cat /run/holder) && kill -KILL \$(cat /run/holder)
    echo $held bytes in reach, bus master $answer; [ $held$answer = 00 ]"

if [ "$interface" = group ]; then
# What bring-up costs, by the card's own count, beside what mlx5_core's costs on the same function.
allowed=20
cost="now() { awk '{ print int(\$1 * 1000 + 0.5) }' /proc/uptime; }; kernel=/sys/bus/pci/drivers/mlx5_core; started=\$(now)"
ask 0 commands
before=$answer
step 60 'our bring-up' "$cost; /ours/devinfo --device vfio:$first > /run/devinfo && echo \$((\$(now) - started)) > /run/ours"
ask 0 commands
ours=$((answer - before))
# The least of three times counts: the computer may leave the machine alone in the middle of one.
step 60 'our bring-up again' "for time in 1 2; do /ours/devinfo --device vfio:$first || exit; done > /run/again"
step 60 'the kernel is ready' "modprobe mlx5_core && /ours/devinfo --device vfio:$first --unbind && $cost &&
    echo $first > \$kernel/unbind"
ask 0 commands
before=$answer
step 60 'its bring-up' "$cost; echo $first > \$kernel/bind && echo \$((\$(now) - started)) > /run/theirs"
ask 0 commands
theirs=$((answer - before))
step 60 'what bring-up costs' "value() { awk \"\\\$1 == \\\"\$1:\\\" { print \\\$2 }\" /run/devinfo; }
    commands=\$(value bring_up_commands)
    took=\$((\$(awk '\$1 == \"bring_up_us:\" { print \$2 }' /run/devinfo /run/again | sort -n | head -n 1) / 1000))
    echo \"note: our bring-up: \$commands firmware commands, \$took ms\"
    echo \"note: devinfo from its start to its end, the function's reset included: $ours firmware commands, \$(cat /run/ours) ms\"
    echo \"note: mlx5_core's probe: $theirs firmware commands, \$(cat /run/theirs) ms\"
    [ \$commands -le $allowed ] && [ \$commands -le $ours ] && [ $ours -lt $theirs ] && [ \$took -lt \$(cat /run/theirs) ]"
step 60 'back from the kernel' "/ours/devinfo --device vfio:$first --bind"
fi

# A user who is not root, with a file of his own, and with too little memory that may be locked.
if [ "$interface" = group ]; then
    files="/dev/vfio/\$(basename \$(readlink /sys/bus/pci/devices/$first/iommu_group))"
else
    files="/dev/iommu /dev/vfio/devices/\$(ls /sys/bus/pci/devices/$first/vfio-dev)"
fi
step 60 'a user' "echo u:x:1000:1000::/:/applets/sh > /etc/passwd && chown 1000 $files"
step 60 'a user with enough' "su u -c 'ulimit -l 65536; /ours/devinfo --device vfio:$first'"
step 60 'a user with too little' "! su u -c 'ulimit -l 64; /ours/devinfo --device vfio:$first'"
step 60 'a user without the file' "! su u -c '/ours/devinfo --device vfio:$second'"
step 60 'a user who binds' "! su u -c '/ours/devinfo --device vfio:$first --unbind'"

if [ "$interface" = group ]; then
# The kernel's own driver has it, and gives it back.
step 120 'to the kernel' "modprobe mlx5_core && /ours/devinfo --device vfio:$first --unbind && netdev mlx5_core"
step 60 'held by the kernel' "! /ours/devinfo --device vfio:$first"
step 60 'from the kernel' "/ours/devinfo --device vfio:$first --bind && /ours/devinfo --device vfio:$first"
fi
step 60 'nothing pinned' 'echo 1 > /proc/sys/vm/stat_refresh; awk "/nr_foll_pin_acquired/ { a = \$2 } /nr_foll_pin_released/ { r = \$2 } END { print a, r; exit a != r || a == 0 }" /proc/vmstat'
