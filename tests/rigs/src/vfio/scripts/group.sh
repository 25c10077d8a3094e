# A function that shares its slot, and so its IOMMU group, with one that the kernel drives.
card=0000:01:00.0
other=0000:01:00.1
devices=/sys/bus/pci/devices
step 60 'one group' "modprobe vfio_iommu_type1 && modprobe vfio-pci && modprobe virtio_pci &&
    until_true '[ -e $devices/$other/driver ]' && ls $devices/$card/iommu_group/devices &&
    [ -e $devices/$card/iommu_group/devices/$other ]"
step 60 'bind' "! /ours/devinfo --device vfio:$card --bind && [ ! -e $devices/$card/driver ]"
# By hand it is possible.
step 60 'by hand' "echo vfio-pci > $devices/$card/driver_override && echo $card > /sys/bus/pci/drivers_probe &&
    [ -e /sys/bus/pci/drivers/vfio-pci/$card ]"
step 60 'open' "! /ours/devinfo --device vfio:$card"
step 60 'the other let go' "echo $other > $devices/$other/driver/unbind && /ours/devinfo --device vfio:$card"
# While a process has the group, the kernel's drivers cannot bind to its functions.
step 60 'the kernel comes back' "/ours/rping -s --device vfio:$card -a 10.0.0.1 > /run/0 2>&1 & p=\$!
    until_true 'grep -q listening /run/0'
    ! echo $other > /sys/bus/pci/drivers/virtio-pci/bind && kill -0 \$p; status=\$?
    kill -KILL \$p; wait \$p; cat /run/0; exit \$status"
step 60 'the kernel may' "echo $other > /sys/bus/pci/drivers/virtio-pci/bind"
step 60 'unbind' "/ours/devinfo --device vfio:$card --unbind && [ ! -e $devices/$card/driver ]"
