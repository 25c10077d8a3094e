# What befalls processes and functions while they work.
first=0000:01:00.0
second=0000:02:00.0
serve="/ours/rping -s --device vfio:$first -a 10.0.0.1 --peer-mac 02:c9:00:00:00:02"
connect="/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 --peer-mac 02:c9:00:00:00:01"
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"

# traffic OPTIONS PINGS: both ends, the client for ever, until so many pings were made. $0 and $1 are their processes.
traffic="
    rm -f /run/0 /run/1
    $serve \$options > /run/0 2>&1 & p0=\$!
    until_true 'grep -q listening /run/0'
    $connect -v -C 1000000 \$options > /run/1 2>&1 & p1=\$!
    until_true \"grep -q 'ping \$pings:' /run/1\"
"
# Whose function it is has to end by itself, with this error; the other end learns nothing, as from a card that lost power.
fails() {
    echo "wait \$p$1; status=\$?; kill -KILL \$p$((1 - $1)); tail -n 4 /run/$1
        [ \$status = 1 ] && grep '$2' /run/$1"
}
quiet="for card in $first $second; do
    [ \$((0x\$(hexdump -s 4 -n 1 -e '1/1 \"%02x\"' /sys/bus/pci/devices/\$card/config) & 4)) = 0 ] || exit 1; done"
pins='echo 1 > /proc/sys/vm/stat_refresh; awk "/nr_foll_pin_acquired/ { a = \$2 } /nr_foll_pin_released/ { r = \$2 } END { print a, r; exit a != r || a == 0 }"'

for round in 1 2 3 4 5 6 7 8 9 10; do
    options=
    [ $((round % 2)) = 0 ] || options=--interrupts
    step 120 "five kills, $round" "options=$options; for pings in 0 1 2 3 5; do
        $traffic
        kill -KILL \$p0 \$p1; wait \$p0; wait \$p1
        $quiet
    done"
done
duet 120 'after the kills' 'grep -q listening /run/server' "$serve" "$connect -C 50 -V"
step 60 'nothing pinned' "$pins /proc/vmstat"

# Unplugged as the kernel does it when the slot's button was pressed. (QEMU 11 aborts at device_del of a vfio-user-pci,
# whatever the guest does with it.)
for options in '' --interrupts; do
    for victim in 0 1; do
        card=$first
        [ $victim = 0 ] || card=$second
        what="$victim${options:+ by interrupts}"
        step 120 "reset of $what" "options=$options; pings=3; $traffic
            echo 1 > /sys/bus/pci/devices/$card/reset; $(fails $victim 'somebody else reset the function')"
        step 120 "hot unplug of $what" "options=$options; pings=3; $traffic
            echo 1 > /sys/bus/pci/devices/$card/remove; $(fails $victim 'the device is gone')
            [ ! -e /sys/bus/pci/devices/$card ]"
        step 60 "hot plug of $what" "echo 1 > /sys/bus/pci/rescan; /ours/devinfo --device vfio:$card --bind"
        duet 120 "after $what" 'grep -q listening /run/server' "$serve $options" "$connect -C 20 -V $options"
    done
done
step 60 'nothing pinned by then' "$pins /proc/vmstat"

# The kernel waits a minute for the function to come back from its reset, and so does the process's end.
step 240 'off the bus' "options=; pings=3; $traffic
    host vanish 1; $(fails 1 'the device is gone')"
