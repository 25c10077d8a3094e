# Functions for scripts and for the commands in their steps.

# busybox's shell takes its own programs first, and these can do less.
ip() { /usr/bin/ip "$@"; }
ping() { /usr/bin/ping "$@"; }
tc() { /usr/sbin/tc "$@"; }

# Not every shell has busybox's programs.
command -v usleep > /dev/null || usleep() { sleep "0.$(printf %06d "$1")"; }

# The other machine.
peer=$((1 - me))

# until_true CONDITION: waits; the step's time limit ends it.
until_true() {
    until eval "$1"; do
        usleep 50000
    done
}

# dead PROCESS: whether it has ended, waited for or not.
dead() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}

# within SECONDS CONDITION: whether the condition becomes true in time.
within() {
    end=$(($(date +%s) + $1))
    until eval "$2"; do
        [ "$(date +%s)" -lt $end ] || return 1
        usleep 50000
    done
}

# listening PORT: a process listens on this TCP port.
listening() {
    cat /proc/net/tcp /proc/net/tcp6 | grep -q ":$(printf %04X "$1") [0-9A-F:]* 0A"
}

# listening_cm: a process listens for connections through the RDMA CM.
listening_cm() {
    rdma resource show cm_id 2> /dev/null | grep -q 'state LISTEN'
}

# iperf3_both_ways ADDRESS: two megabytes and more from iperf3's client and to it, over one stream and four, each with as
# many bytes received as sent. The client cancels its sending threads at the end, at any instruction: of a block of 128 KiB
# that a thread has sent, its count may be lost, one for each stream.
iperf3_both_ways() {
    for options in '' '-R' '-P 4' '-R -P 4'; do
        case $options in *-R*) uncounted=0 ;; *4) uncounted=4 ;; *) uncounted=1 ;; esac
        iperf3 -c "$1" -J -n 2M $options > /run/counts || { cat /run/counts; return 1; }
        awk -v "uncounted=$uncounted" '
            /"sum_(sent|received)"/ { sum = $1 }
            sum && /"bytes"/ { gsub(/[^0-9]/, ""); bytes[sum ~ /sent/] = $0 + 0; sum = "" }
            END {
                printf "%d sent, %d received\n", bytes[1], bytes[0]
                lost = bytes[0] - bytes[1]
                exit !(bytes[1] >= 2097152 && lost >= 0 && lost <= uncounted * 131072)
            }' /run/counts || return
    done
}

# host EVENT...: asks the host that runs this machine to do something to the card.
host() {
    echo "@@ host $*" > /dev/console
}

# monitor LINE: executes a command of QEMU's monitor on this machine.
monitor() {
    echo "@@ monitor $*" > /dev/console
}

# netdev DRIVER: the name of the network device that a driver made.
netdev() {
    for device in /sys/class/net/*; do
        if [ "$(basename "$(readlink "$device/device/driver" 2> /dev/null)")" = "$1" ]; then
            basename "$device"
            return
        fi
    done
    return 1
}

# roce_up MODULE...: the steps that load the driver with these modules, and bring the port up at 192.168.1.$mine, with $gid;
# the other machine is $other.
roce_up() {
    mine=$((me + 1))
    other=$((peer + 1))
    gid=0000:0000:0000:0000:0000:ffff:c0a8:010$mine
    step 60 'load' "modprobe mlx5_ib $(printf '&& modprobe %s ' "$@")&& netdev mlx5_core"
    step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
        ip address add 192.168.1.'$mine'/24 dev $card &&
        until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state"'
    step 60 'GIDs' "until_true 'grep -q $gid /sys/class/infiniband/mlx5_0/ports/1/gids/*'"
    barrier
    step 60 'ping' "ping -c 1 -w 30 192.168.1.$other"
}

# gid_index VERSION TEXT: the index of the first GID with the text in it, of this version of RoCE. There are hundreds, and a
# process for each takes long.
gid_index() {
    for entry in /sys/class/infiniband/mlx5_0/ports/1/gids/*; do
        index=${entry##*/}
        read -r type < "${entry%/gids/*}/gid_attrs/types/$index" && read -r gid < "$entry" || continue
        case "$1 $type $gid" in
        '1 IB/RoCE v1 '*"$2"* | '2 RoCE v2 '*"$2"*)
            echo "$index"
            return
            ;;
        esac
    done 2> /dev/null
    return 1
}

# wait_for_traffic: waits until the port has sent 100 more packets.
wait_for_traffic() {
    before=$(packets)
    until_true '[ "$(packets)" -gt $((before + 100)) ]'
}

# counted NAME: whether a counter of the network device is not 0.
counted() {
    [ "$(ethtool -S "$(netdev mlx5_core)" | awk '$1 == "'"$1"':" { print $2 }')" -gt 0 ]
}

packets() {
    ethtool -S "$(netdev mlx5_core)" | awk '$1 == "tx_packets_phy:" { print $2 }'
}
