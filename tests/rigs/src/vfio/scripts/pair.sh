# Two machines, a function each, our programs on both.
card=0000:01:00.0
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind"
step 60 'devinfo' "/ours/devinfo --device vfio:$card"
for wait in '' ' --interrupts'; do
    duet 120 "rping$wait" 'grep -q listening /run/server' \
        "/ours/rping -s --device vfio:$card -a 10.0.0.1 --peer-mac 02:c9:00:00:00:02$wait" \
        "/ours/rping -c --device vfio:$card -a 10.0.0.1 -I 10.0.0.2 --peer-mac 02:c9:00:00:00:01 -C 200 -V --json$wait"
done
