# Two machines, a function each, our programs on both.
card=0000:01:00.0
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci && /ours/devinfo --device vfio:$card --bind"
step 60 'devinfo' "/ours/devinfo --device vfio:$card"
for wait in '' ' --interrupts'; do
    client_server 120 "rping$wait" 'grep -q listening /run/server' \
        "/ours/rping -s --device vfio:$card -a 10.0.0.1$wait" \
        "/ours/rping -c --device vfio:$card -a 10.0.0.1 -I 10.0.0.2 -C 200 -V --json$wait"
done
for wait in '' ' --interrupts'; do
    client_server 240 "perf$wait" 'grep -q listening /run/server' \
        "/ours/perf -s --device vfio:$card -a 10.0.0.1$wait" \
        "/ours/perf -c --device vfio:$card -a 10.0.0.1 -I 10.0.0.2 -n 20 -S 8,4096 -t 1,16$wait"
done
