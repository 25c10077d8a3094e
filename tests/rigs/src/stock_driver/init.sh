#!/usr/bin/busybox sh
# The guest's first process: mounts what programs expect, runs /script, and switches the machine off.
#
# Kernel messages stay off the console, where they would run into what programs print; every step shows those that came
# with it, with their levels.
/usr/bin/busybox mkdir -p /applets
/usr/bin/busybox --install -s /applets
export PATH=/usr/bin:/usr/sbin:/applets
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
ip link set lo up
echo 1 > /proc/sys/kernel/printk
dmesg -c > /dev/null

# step SECONDS NAME COMMAND: runs a shell command; its output, its exit status and the kernel's messages go to the console.
step() {
    echo "@@ step $2"
    {
        timeout -s KILL "$1" sh -c "$3" < /dev/null 2>&1
        echo "@status $?"
    } | sed 's/^/@out /'
    dmesg -r -c | sed 's/^/@log /'
    echo "@@ done $2"
}

# host EVENT...: has the machine that runs this one do something to the card.
host() {
    echo "@@ host $*"
}

. /script
echo "@@ end"
poweroff -f
