# Virtual functions as a guest has them, one with addresses and one without, and a physical one, on one switch.
addressed=0000:01:00.0
bare=0000:02:00.0
physical=0000:03:00.0
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $addressed $bare $physical; do /ours/devinfo --device vfio:\$card --bind || exit; done"
step 60 'devinfo' "RUST_LOG=info /ours/devinfo --device vfio:$addressed"
step 60 'devinfo without MAC' "/ours/devinfo --device vfio:$bare"
step 60 'devinfo of the physical one' "/ours/devinfo --device vfio:$physical"
step 60 'self test' "/ours/devinfo --device vfio:$addressed --selftest"
step 240 'tests' "BAREVERBS_DEVICE=vfio:$addressed BAREVERBS_OTHER_DEVICE=vfio:$physical \
    /ours/on_device --ignored --test-threads=1"

chosen=02:11:22:33:44:55
for wait in '' ' --interrupts'; do
    step 120 "both kinds in one process$wait" "/ours/rping --device vfio:$addressed,vfio:$physical -C 200 --json$wait &&
        /ours/rping --device vfio:$physical,vfio:$addressed -C 20 -S 1000000 --json$wait"
    client_server 120 "with a MAC of its own choice$wait" 'grep -q listening /run/server' \
        "/ours/rping -s --device vfio:$addressed -a 10.0.0.1$wait" \
        "/ours/rping -c --device vfio:$bare --mac $chosen -a 10.0.0.1 -I 10.0.0.2 -C 200 -V --json$wait"
done
step 60 'without MAC' "! /ours/rping -c --device vfio:$bare -a 10.0.0.1 -I 10.0.0.2"
step 180 'perf' "/ours/perf --device vfio:$addressed,vfio:$physical -n 20 -S 8,4096 -t 1,16"
step 120 'to the kernel and back' "modprobe mlx5_core && /ours/devinfo --device vfio:$addressed --unbind && netdev mlx5_core &&
    /ours/devinfo --device vfio:$addressed --bind && /ours/devinfo --device vfio:$addressed"
step 60 'nothing pinned' 'echo 1 > /proc/sys/vm/stat_refresh; awk "/nr_foll_pin_acquired/ { a = \$2 } /nr_foll_pin_released/ { r = \$2 } END { print a, r; exit a != r || a == 0 }" /proc/vmstat'
