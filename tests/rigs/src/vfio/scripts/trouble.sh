# Faults of processes and functions while they work. $rounds says how often five processes are killed.
first=0000:01:00.0
second=0000:02:00.0
serve="/ours/rping -s --device vfio:$first -a 10.0.0.1"
connect="/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2"
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"

# traffic OPTIONS PINGS: both ends, the client for ever, until so many pings were made. $0 and $1 are their processes.
traffic="
    rm -f /run/0 /run/1
    $serve \$options > /run/0 2>&1 & p0=\$!
    until_true 'grep -q listening /run/0 || dead \$p0'
    $connect -v -C 1000000 \${others-\$options} > /run/1 2>&1 & p1=\$!
    until_true \"grep -q 'ping \$pings:' /run/1 || dead \$p1\"
"
# The process that has the function has to end by itself, with this error; the other end is not notified, as with a card
# that lost power. A process that is killed has its function until it is waited for.
fails() {
    echo "wait \$p$1; status=\$?; kill -KILL \$p$((1 - $1)); wait \$p$((1 - $1)); tail -n 4 /run/0 /run/1
        [ \$status = 1 ] && grep '$2' /run/$1"
}
quiet="for card in $first $second; do
    [ \$((0x\$(hexdump -s 4 -n 1 -e '1/1 \"%02x\"' /sys/bus/pci/devices/\$card/config) & 4)) = 0 ] || exit 1; done"
pins='echo 1 > /proc/sys/vm/stat_refresh; awk "/nr_foll_pin_acquired/ { a = \$2 } /nr_foll_pin_released/ { r = \$2 } END { print a, r; exit a != r || a == 0 }"'

for round in $rounds; do
    options=
    [ $((round % 2)) = 0 ] || options=--interrupts
    step 120 "five kills, $round" "options=$options; for pings in 0 1 2 3 5; do
        $traffic
        kill -KILL \$p0 \$p1; wait \$p0; wait \$p1
        $quiet
    done"
done
# The card cannot reach any memory of theirs.
left=
for what in reach master; do
    for function in 0 1; do
        ask $function $what
        left="$left $answer"
    done
done
step 60 'nothing in reach' "echo 'bytes in reach, bus masters:$left'; [ '$left' = ' 0 0 0 0' ]"
client_server 120 'after the kills' 'grep -q listening /run/server' "$serve" "$connect -C 50 -V"
step 60 'nothing pinned' "$pins /proc/vmstat"

# Unplugged as the kernel does it when the slot's button was pressed, and plugged in again. (QEMU aborts when it takes a
# vfio-user-pci out itself, so that is a separate scenario.)
for options in '' --interrupts; do
    for victim in 0 1; do
        card=$first
        [ $victim = 0 ] || card=$second
        what="$victim${options:+ by interrupts}"
        # As long as the kernel is at it, the function's registers may read all ones.
        step 120 "reset of $what" "options=$options; pings=3; $traffic
            echo 1 > /sys/bus/pci/devices/$card/reset
            $(fails $victim 'the function was reset from outside this driver\|the device is gone')"
        step 120 "hot unplug of $what" "options=$options; pings=3; $traffic
            echo 1 > /sys/bus/pci/devices/$card/remove; $(fails $victim 'the device is gone')
            [ ! -e /sys/bus/pci/devices/$card ]"
        step 60 "hot plug of $what" "echo 1 > /sys/bus/pci/rescan; /ours/devinfo --device vfio:$card --bind"
        client_server 120 "after $what" 'grep -q listening /run/server' "$serve $options" "$connect -C 20 -V $options"
    done
done
step 60 'nothing pinned by then' "$pins /proc/vmstat"

# The port before the function finds a fatal error. The kernel notifies vfio-pci's user, and resets what is behind the
# port.
step 120 'bus error' "options=; pings=3; $traffic
    monitor pcie_aer_inject_error port1 DLP
    $(fails 1 'the device is gone') && grep 'the PCI bus reported an uncorrectable error' /run/1"
client_server 120 'after the bus error' 'grep -q listening /run/server' "$serve" "$connect -C 20 -V"

# A process that waits is notified long before the kernel gives up, whether it polls or sleeps. The kernel waits a minute for the functions to
# come back from their reset, and so do the processes' ends.
step 240 'off the bus' "options=; others=--interrupts; pings=3; $traffic
    now() { awk '{ print int(\$1 * 1000 + 0.5) }' /proc/uptime; }
    started=\$(now); host vanish 0; host vanish 1
    for end in 0 1; do until_true \"grep -q '^rping: .*the device is gone' /run/\$end\"; done
    detected=\$((\$(now) - started)); kill -0 \$p0 && kill -0 \$p1 || exit
    wait \$p0; status0=\$?; wait \$p1; status1=\$?
    echo \"note: detected after \$detected ms, ended after \$((\$(now) - started)) ms\"
    tail -n 2 /run/0 /run/1; [ \$status0\$status1 = 11 ] && [ \$detected -le 10000 ]"
