# Two functions on one cable, each in its own IOMMU group, for rdma-core's VFIO driver in one process.
first=0000:01:00.0
second=0000:02:00.0
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci && for card in $first $second; do
    echo vfio-pci > /sys/bus/pci/devices/\$card/driver_override && echo \$card > /sys/bus/pci/drivers_probe || exit; done
    [ -e /sys/bus/pci/drivers/vfio-pci/$first ] && [ -e /sys/bus/pci/drivers/vfio-pci/$second ]"
for time in 1 2; do
    step 180 "two functions, time $time" "/ours/rdma_core_vfio $first $second"
done
