# A subnet of 500 adapters, of which this machine has one; the firmware of the others answers the manager. The same subnet, as
# ibnetdiscover writes it, is then simulated by ibsim on this machine, under the same manager.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_umad && mkdir -p /run/sim /var/log /var/cache/opensm'
# What the topology has: 28 leaves and 18 spines of 36 ports, a cable for each adapter and for each pair of leaf and spine. Then
# functions, of which most take the name of a manager first.
step 60 'files' 'mkdir -p /run/osm && cat > /run/osm/functions <<"LIST"
adapters=500 switches=$((28 + 18))
ends=$(((500 + 28 * 18) * 2)) ports=$((500 + switches * 36))
# manager NAME VARIABLE=VALUE...: a subnet manager in the background, which sweeps once, and then when its console says so.
manager() {
    name=$1
    shift
    mkdir -p /run/osm/$name && cd /run/osm/$name && mkfifo console
    setsid env OSM_CACHE_DIR=/run/osm/$name OSM_TMP_DIR=/run/osm/$name "$@" \
        opensm -d 2 -q local -s 0 -f /run/osm/$name/log <> console > out 2>&1 &
    echo $! > /run/osm/$name/process
    until_true "swept $name 1"
}
end_manager() {
    kill -TERM "$(cat /run/osm/$1/process)"
    until_true "dead $(cat /run/osm/$1/process)"
}
logged() { grep -c "$2" "/run/osm/$1/log" 2> /dev/null; }
# swept NAME TIMES: whether so many heavy sweeps are over.
swept() { [ "$(logged "$1" "SUBNET UP")" = "$2" ]; }
# console NAME LAST COMMAND: gives a command, and prints the answer, whose last line has this text.
console() {
    dead "$(cat /run/osm/$1/process)" && return 1
    before=$(wc -l < /run/osm/$1/out)
    echo "$3" > /run/osm/$1/console
    until_true "tail -n +$((before + 1)) /run/osm/$1/out | grep -q \"$2\""
    tail -n +$((before + 1)) /run/osm/$1/out
}
# Datagrams so far.
sent() { console "$1" "Known SMs" status | awk "/QP0 MADs sent/ { print \$NF }"; }
# begun NAME: what comes now is measured; ended NAME FIRST LAST WHAT: a note of how many milliseconds were between a line of the
# log since then and a later one, and how many datagrams were sent.
begun() {
    sent "$1" > /run/osm/$1/sent
    wc -l < /run/osm/$1/log > /run/osm/$1/line
}
ended() {
    datagrams=$(($(sent "$1") - $(cat /run/osm/$1/sent)))
    took=$(tail -n +$(($(cat /run/osm/$1/line) + 1)) /run/osm/$1/log | awk -v first="$2" -v last="$3" "
        { split(\$3, time, \":\"); now = ((time[1] * 60 + time[2]) * 60 + time[3]) * 1000 + \$4 / 1000 }
        index(\$0, first) && !began { began = now }
        index(\$0, last) && began && !took { took = now - began }
        END { printf \"%.1f\", took }")
    [ "$took" != 0.0 ] && echo "note: $1: $4: $took ms, $datagrams datagrams"
}
# first NAME: the first sweep is measured.
first() {
    echo 0 | tee /run/osm/$1/sent > /run/osm/$1/line
    ended $1 "Entering DISCOVERING" "SUBNET UP" "first sweep"
}
# light NAME: three light sweeps, which ask each switch whether something has changed.
light() {
    for round in 1 2 3; do
        begun $1
        console $1 Setting "loglevel 0x7" > /dev/null
        echo "resweep light" > /run/osm/$1/console
        until_true "[ \"\$(logged $1 \"LIGHT SWEEP COMPLETE\")\" = $round ]"
        console $1 Setting "loglevel 0x3" > /dev/null
        ended $1 light_sweep_start: do_sweep: "light sweep" || return 1
        [ "$datagrams" = "$switches" ] || return 1
    done
}
# counted NAME: whether the manager knows all nodes and ports, and those with cables are active.
counted() {
    console $1 "Gbps" portstatus
    console $1 "Gbps" portstatus | grep -q " $ports port(s) scanned on $((adapters + switches)) nodes" &&
        console $1 "Gbps" portstatus | grep -q " $ends active" &&
        console $1 "Gbps" "portstatus ca" | grep -q " $adapters active"
}
LIST'
osm='. /run/osm/functions'
# Nothing was wrong, by the log of the manager.
step 400 'first sweep' "$osm; manager model && first model; cat /run/osm/model/log
    ! grep ERR /run/osm/model/log && swept model 1"
step 100 'counted' "$osm; counted model"
step 200 'light sweeps' "$osm; light model"
step 400 'discovered' "$osm"'; ibnetdiscover > /run/osm/net && head -50 /run/osm/net && tail -4 /run/osm/net &&
    [ $(grep -c "^Ca" /run/osm/net) = $adapters ] && [ $(grep -c "^Switch" /run/osm/net) = $switches ] &&
    [ $(grep -A 1 "^Ca" /run/osm/net | sed -n "s/.*# lid \([1-9][0-9]*\) lmc.*/\1/p" | sort -u | wc -l) = $adapters ]'
step 400 'links' "$osm"'; iblinkinfo -l > /run/osm/links; head -5 /run/osm/links; tail -5 /run/osm/links
    echo "$(grep -c Active /run/osm/links) ends" && [ "$(grep -c Active /run/osm/links)" = $ends ]'
step 60 'manager ends' "$osm; end_manager model"
step 100 'ibsim' "$osm; cd /run/sim && mkfifo console &&
    { setsid /ours/ibsim -s /run/osm/net <> console > out 2>&1 & } &&
    until_true 'grep -q MaxMcastCap out'; tail -5 out"
step 400 'first sweep in ibsim' "$osm"'; manager ibsim SIM_HOST=H-0002c90300000100 LD_PRELOAD=/ours/libumad2sim.so &&
    first ibsim; cat /run/osm/ibsim/log /run/osm/ibsim/out; swept ibsim 1'
step 100 'counted in ibsim' "$osm; counted ibsim"
step 200 'light sweeps in ibsim' "$osm; light ibsim"
step 60 'end' "$osm; end_manager ibsim; rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core"
