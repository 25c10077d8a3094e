#!/usr/bin/busybox sh
# The guest's first process: mounts what programs expect, runs /script, and switches the machine off.
#
# What it says to the machine that runs this one, and what it hears from there, goes over the console, by lines:
#
#   @@ up             this machine listens; the answer is its number, how many machines there are, how often it booted
#   @@ step NAME      a step begins; `@out` is what it prints, `@status` how it ended, `@log` what the kernel said
#   @@ done NAME      it is over
#   @@ tell WORD      for the other machine, which gets WORD
#   @@ down           this machine boots anew, and listens no more
#   @@ host EVENT...  something is to happen to the card
#   @@ lost NAME      the other machine did not tell NAME
#   @@ end            the script is over
#
# Kernel messages stay off the console, where they would run into what programs print.
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
echo "@@ up"
read -r me machines boot
export me machines boot
. /helpers

# How long one machine waits for the other, in seconds.
patience=240
meetings=0
heard=' '

# tell NAME WORD: gives the other machine a word under a name.
tell() {
    echo "@@ tell $1=$2"
}

# await NAME: waits for what the other machine tells under the name, and leaves it in $answer.
await() {
    while :; do
        case "$heard" in
        *" $1="*)
            answer=${heard#*" $1="}
            answer=${answer%% *}
            return
            ;;
        esac
        if ! read -r -t "$patience" word; then
            echo "@@ lost $1"
            poweroff -f
        fi
        heard="$heard$word "
    done
}

# meet: goes on when the other machine is here as well.
meet() {
    meetings=$((meetings + 1))
    if [ "$machines" = 2 ]; then
        tell "$meetings.met" yes
        await "$meetings.met"
    fi
}

# exchange NAME COMMAND: gives the other machine a word that the command prints, and leaves what it gave in $answer.
exchange() {
    meetings=$((meetings + 1))
    tell "$meetings.$1" "$(eval "$2")"
    await "$meetings.$1"
}

# mark: puts its standard input on the console as what a step prints.
mark() {
    awk '{ print "@out " $0; fflush() }'
}

begin() {
    echo "@@ step $1"
}

# end NAME STATUS
end() {
    echo "@status $2"
    dmesg -r -c | tee -a /run/kernel.log | awk '{ print "@log " $0 }'
    echo "@@ done $1"
}

# run SECONDS COMMAND: runs a shell command, and leaves its exit status in $status.
run() {
    {
        timeout -s KILL "$1" sh -c ". /helpers; $2" < /dev/null 2>&1
        echo $? > /run/status
    } | mark
    read -r status < /run/status
}

# step SECONDS NAME COMMAND: runs a shell command.
step() {
    begin "$2"
    run "$1" "$3"
    end "$2" "$status"
}

# start SECONDS READY COMMAND: runs a server in the background and waits until READY is true.
# $server is its process (and process group), $begun whether it got there.
start() {
    setsid timeout -s KILL "$1" sh -c ". /helpers; $3" < /dev/null > /run/server 2>&1 &
    server=$!
    begun=yes
    until eval "$2"; do
        if ! kill -0 $server 2> /dev/null; then
            begun=no
            break
        fi
        usleep 50000
    done
}

# finish HOW: waits for the server; if its client went wrong, it would wait for ever.
finish() {
    [ "$1" = 0 ] || kill -KILL -$server 2> /dev/null
    wait $server
    status=$?
}

# duet SECONDS NAME READY SERVER CLIENT: a server on machine 0 and, as soon as READY is true there, its client on machine
# 1; or both on the only machine there is.
duet() {
    meetings=$((meetings + 1))
    begin "$2"
    case $me$machines in
    01)
        start "$1" "$3" "$4"
        client=1
        if [ $begun = yes ]; then
            run "$1" "$5"
            client=$status
        fi
        finish "$client"
        echo "client $client, server $status:" | mark
        mark < /run/server
        [ "$client" = 0 ] || status=$client
        ;;
    02)
        serve "$@"
        finish "$answer"
        mark < /run/server
        ;;
    12) call "$@" ;;
    esac
    end "$2" "$status"
}

# strike SECONDS NAME READY SERVER CLIENT: a duet in which something happens to the client's machine. The server may not
# survive that, and does not outlive it.
strike() {
    meetings=$((meetings + 1))
    begin "$2"
    case $me in
    0)
        serve "$@"
        finish 1
        mark < /run/server
        status=$answer
        ;;
    1) call "$@" ;;
    esac
    end "$2" "$status"
}

# One side of these: starts the server, and waits until the client has ended.
serve() {
    start "$1" "$3" "$4"
    tell $meetings.begun $begun
    await $meetings.client
}

# The other side.
call() {
    await $meetings.begun
    status=1
    if [ "$answer" = yes ]; then
        run "$1" "$5"
    else
        echo "the server did not start" | mark
    fi
    tell $meetings.client "$status"
}

# restart: boots anew.
restart() {
    echo "@@ down"
    reboot -f
}

. /script
echo "@@ end"
poweroff -f
