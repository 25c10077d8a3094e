# Behind testpmd.sh: testpmd in both guests, one port each, at the two ends of one cable.
talk="$talk"'
# same FIGURES FIGURES BYTES: whether the second machine received what the first one sent.
same() {
    echo "$1,$2,$3" | awk -F, "{ exit !(\$1 == \$8 + \$10 && \$2 == \$9 + \$10 * \$11) }"
}
'
eval "$talk"

# launch NAME ARGUMENTS: those of EAL, and after -- those of testpmd.
launch() {
    barrier
    start_testpmd "$1" "$2"
    barrier
}
# leave NAME
leave() {
    barrier
    end_testpmd "$1"
}
# pause MICROSECONDS
pause() {
    [ ! "$run" ] || usleep "$1"
}
# agree NAME BYTES: both machines have counted the same once everything under way has come. Of packets of
# so many bytes the port counts those that came while there was no buffer, but not their bytes.
agree() {
    times=0
    mine=0,0,0,0,0
    answer=0,0,0,0,0
    while [ "$run" ]; do
        mine=$(figures 0)
        exchange figures "echo $mine"
        times=$((times + 1))
        if { same $mine $answer $2 && same $answer $mine $2; } || [ $times = 50 ]; then
            break
        fi
        usleep 100000
    done
    step 30 "$1" "$talk
        echo 'note: packets and bytes sent, packets and bytes received, packets without a buffer: $mine'
        same $mine $answer $2 && same $answer $mine $2 && echo $mine$answer | grep -q '[1-9]'"
}
# go NAME COMMAND...: gives testpmd commands in a step.
go() {
    name=$1
    shift
    words=
    for word in "$@"; do
        words="$words '$word'"
    done
    step 60 "$name" "$talk
        tell$words"
}
# engines NAME FIRST SECOND [COMMAND...]: how machine 0 and machine 1 forward; machine 1 begins.
engines() {
    name=$1 first=$2 second=$3
    shift 3
    barrier
    if [ "$me" = 0 ]; then
        go "$name" "$@" "set fwd $first" 'clear port stats all'
    else
        go "$name" "$@" "set fwd $second" 'clear port stats all' start
    fi
    barrier
}
