# The runner on our libraries, with the card on vfio-pci and the addresses that the model's device has.
card=0000:01:00.0
libraries=/run/libraries
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    echo vfio-pci > /sys/bus/pci/devices/$card/driver_override && echo $card > /sys/bus/pci/drivers_probe &&
    [ -e /sys/bus/pci/drivers/vfio-pci/$card ]"
step 60 'libraries' "mkdir $libraries && for name in libibverbs.so.1 librdmacm.so.1; do
        ln -s /ours/libibverbs.so.1 $libraries/\$name || exit 1
    done"
# Scripts of the C library's sockets are not for the card, nor those that register 1 GiB: its emulated IOMMU maps each page by a
# message of its own.
step 900 'scripts' "awk '/^@/ { is_left_out = /-plain\$|^@ largest/ } !is_left_out' /ours/scripts > /run/scripts &&
    env LD_LIBRARY_PATH=$libraries BAREVERBS_DEVICE=vfio:$card BAREVERBS_ADDRESS=10.0.0.1/24,fd00::1/64 /ours/runner < /run/scripts"
