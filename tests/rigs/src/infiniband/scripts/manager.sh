# Two partitions with groups of IPoIB for packets of 4096 bytes; all ports are full members of both. Then functions:
# active DEVICE: the port is in use; number DEVICE NAME: what the kernel knows of it, as a decimal number; manager OPTION...: a
# subnet manager in the background; end_manager SIGNAL.
step 60 'files' 'mkdir -p /run/osm && cat > /run/osm/partitions <<LIST
Default=0x7fff, ipoib, mtu=5 : ALL=full ;
Blue=0x0001, ipoib, mtu=5 : ALL=full ;
LIST
cat > /run/osm/functions <<"LIST"
active() { grep -q "4: ACTIVE" "/sys/class/infiniband/$1/ports/1/state"; }
number() { echo $(($(cat "/sys/class/infiniband/$1/ports/1/$2"))); }
manager() {
    setsid opensm -P /run/osm/partitions -f /run/osm/log "$@" > /run/osm/out 2>&1 < /dev/null &
    echo $! > /run/osm/process
}
end_manager() {
    kill "-$1" "$(cat /run/osm/process)"
    until_true "dead $(cat /run/osm/process)"
}
LIST
'
osm='. /run/osm/functions'
