# The slot's button is pressed while the function works (QEMU's device_del): five seconds later the kernel takes it away,
# for which the process has to close it, switches the slot's power off and releases the button, at which QEMU takes the
# function out. $what says what is at work, and $card whose function it is.
first=0000:01:00.0
second=0000:02:00.0
button="monitor device_del card$card"
serve="/ours/rping -s --device vfio:$first -a 10.0.0.1 $options"
connect="/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 $options"
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"
case $what in
ping)
    # The process that has the function ends by itself, with the error. The other end is not notified, as with a card
    # without power.
    step 60 'unplug' "
        $serve > /run/0 2>&1 & p0=\$!
        until_true 'grep -q listening /run/0 || dead \$p0'
        $connect -v -C 1000000 > /run/1 2>&1 & p1=\$!
        until_true \"grep -q 'ping 3:' /run/1 || dead \$p1\"
        $button
        wait \$p$card; status=\$?; kill -KILL \$p$((1 - card)); wait \$p$((1 - card)); tail -n 4 /run/$card
        [ \$status = 1 ] && grep '^rping: .*the device is gone' /run/$card"
    ;;
waiters)
    step 60 'unplug' "BAREVERBS_DEVICE=vfio:$second BAREVERBS_LEAVE='echo @@ $button > /dev/console' \
        /ours/on_device --ignored --nocapture waiters_are_notified"
    ;;
esac
ask "$card" reach
reach=$answer
ask "$card" master
step 60 'nothing in reach' "echo $reach bytes, bus master $answer; [ $reach$answer = 00 ]"
until_true '[ "$(cat /sys/bus/pci/slots/'"$card"'/adapter)" = 0 ]'
