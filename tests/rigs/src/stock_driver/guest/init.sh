#!/usr/bin/busybox sh
# The guest's first process: mounts what programs expect, runs /script, and switches the machine off.
#
# Kernel messages stay off the console, where they would be mixed with what programs print.
/usr/bin/busybox mkdir -p /applets
/usr/bin/busybox --install -s /applets
export PATH=/usr/bin:/usr/sbin:/applets
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
ip link set lo up
echo 1 > /proc/sys/kernel/printk
dmesg -c > /dev/null
stty -echo
ulimit -l unlimited
export run=/run helpers=/helpers

# kernel_log: the kernel's messages since the last call.
kernel_log() {
    dmesg -r -c | tee -a /run/kernel.log
}

halt() {
    poweroff -f
}

# restart: boots again.
restart() {
    echo "@@ down"
    reboot -f
}

. /session
. /script
echo "@@ end"
halt
