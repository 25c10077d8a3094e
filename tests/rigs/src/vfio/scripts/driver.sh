# One machine, two functions on one cable, each with an IOMMU group of its own.
first=0000:01:00.0
second=0000:02:00.0
step 60 'modules' 'modprobe vfio_iommu_type1 && modprobe vfio-pci && ls /sys/kernel/iommu_groups/*/devices'
step 60 'not bound' "! /ours/devinfo --device vfio:$first"
step 60 'what binding takes' "/ours/devinfo --device vfio:$first --bind --dry-run && [ ! -e /sys/bus/pci/devices/$first/driver ]"
step 60 'bind' "for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"
step 60 'devinfo' "BAREVERBS_DEVICE=vfio:$first RUST_LOG=info /ours/devinfo"
step 60 'the same for programs' "/ours/devinfo --device vfio:$second --json"

# What the driver promises, on one function.
step 240 'tests' "BAREVERBS_DEVICE=vfio:$first /ours/on_device --ignored --test-threads=1"

for pages in 0 64; do
    for wait in '' ' --interrupts'; do
        what="$pages huge pages$wait"
        step 60 "pool of $pages$wait" "echo $pages > /proc/sys/vm/nr_hugepages; [ \$(cat /proc/sys/vm/nr_hugepages) = $pages ]"
        step 120 "one process, $what" \
            "/ours/rping --device vfio:$first,vfio:$second -C 200 --json$wait"
        step 120 "one process, large messages, $what" \
            "/ours/rping --device vfio:$first,vfio:$second -C 10 -S 1000000 --json$wait"
        duet 120 "two processes, $what" 'grep -q listening /run/server' \
            "/ours/rping -s --device vfio:$first -a 10.0.0.1 --peer-mac 02:c9:00:00:00:02$wait" \
            "/ours/rping -c --device vfio:$second -a 10.0.0.1 -I 10.0.0.2 --peer-mac 02:c9:00:00:00:01 -C 200 -V --json$wait"
    done
done
step 180 'perf' "/ours/perf --device vfio:$first,vfio:$second -n 20 -s 8,4096 -t 1,16"

# Who waits for a connection sleeps: it wakes a few times a second. (What that costs in an emulated machine says nothing.)
idle="/ours/rping -s --device vfio:$first -a 10.0.0.1 --peer-mac 02:c9:00:00:00:02 --interrupts > /run/idle & p=\$!
    until_true 'grep -q listening /run/idle'"
step 60 'interrupts' "$idle; grep vfio /proc/interrupts; status=\$?; kill \$p; wait \$p; exit \$status"
step 60 'idle' "$idle; wakes() { awk '/^voluntary_ctxt_switches/ { print \$2 }' /proc/\$p/status; }
    sleep 2; before=\$(wakes); sleep 5; wakes=\$((\$(wakes) - before)); kill \$p; wait \$p
    echo \$wakes wakes in 5 s; [ \$wakes -le 25 ]"
step 60 'no pool' 'echo 0 > /proc/sys/vm/nr_hugepages'

# A user who is not root, with a file of his own, and with too little memory that may be locked.
step 60 'a user' "echo u:x:1000:1000::/:/applets/sh > /etc/passwd &&
    chown 1000 /dev/vfio/\$(basename \$(readlink /sys/bus/pci/devices/$first/iommu_group))"
step 60 'a user with enough' "su u -c 'ulimit -l 65536; /ours/devinfo --device vfio:$first'"
step 60 'a user with too little' "! su u -c 'ulimit -l 64; /ours/devinfo --device vfio:$first'"
step 60 'a user without the file' "! su u -c '/ours/devinfo --device vfio:$second'"
step 60 'a user who binds' "! su u -c '/ours/devinfo --device vfio:$first --unbind'"

# The kernel's own driver has it, and gives it back.
step 120 'to the kernel' "modprobe mlx5_core && /ours/devinfo --device vfio:$first --unbind && netdev mlx5_core"
step 60 'held by the kernel' "! /ours/devinfo --device vfio:$first"
step 60 'from the kernel' "/ours/devinfo --device vfio:$first --bind && /ours/devinfo --device vfio:$first"
step 60 'nothing pinned' 'echo 1 > /proc/sys/vm/stat_refresh; awk "/nr_foll_pin_acquired/ { a = \$2 } /nr_foll_pin_released/ { r = \$2 } END { print a, r; exit a != r || a == 0 }" /proc/vmstat'
