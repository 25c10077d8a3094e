# How a machine runs its script, and communicates with the one that runs it.
#
# It communicates with the host that runs it over the console, by lines:
#
#   @@ up             this machine listens; the answer is its number, how many machines there are, how often it booted
#   @@ step NAME      a step begins; `@out` is what it prints, `@status` how it ended, `@log` what the kernel said
#   @@ done NAME      it is over
#   @@ tell WORD      for the other machine, which gets WORD
#   @@ down           this machine boots again, and reads no more until then
#   @@ host EVENT...  something is to happen to the card
#   @@ monitor LINE   something is to happen to the machine, in the words of QEMU's monitor
#   @@ ask NAME FUNCTION WHAT   the model's state of a function, which comes back under the name
#   @@ lost NAME      the other machine did not send NAME
#   @@ end            the script is over
#
# The script that includes this has set $run, a directory for files, and $helpers, the path of the helpers, and defines
# the functions kernel_log and halt.
echo "@@ up"
read -r me machines boot
export me machines boot
. "$helpers"

# How long one machine waits for the other, in seconds.
idle_limit=240
meetings=0
heard=' '

# tell NAME WORD: sends the other machine a word under a name.
tell() {
    echo "@@ tell $1=$2"
}

# await NAME: waits for the other machine's word under the name, and leaves it in $answer.
await() {
    while :; do
        case "$heard" in
        *" $1="*)
            answer=${heard#*" $1="}
            answer=${answer%% *}
            return
            ;;
        esac
        if ! read -r -t "$idle_limit" word; then
            echo "@@ lost $1"
            halt
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

# ask FUNCTION WHAT: leaves in $answer the model's state of a function: how many `commands` it completed, how many bytes
# of memory are in its `reach`, whether it is bus `master`, how many `doorbells` of send queues it saw, and of the
# requests that came through them how many it took as they came (`blue-flame`) or had to fetch (`blue-flame-missed`).
asked=0
ask() {
    asked=$((asked + 1))
    echo "@@ ask $asked.$2 $1 $2"
    await "$asked.$2"
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
    kernel_log | awk '{ print "@log " $0 }'
    echo "@@ done $1"
}

# run SECONDS COMMAND: runs a shell command, and leaves its exit status in $status.
run() {
    {
        timeout -s KILL "$1" sh -c ". $helpers; $2" < /dev/null 2>&1
        echo $? > "$run/status"
    } | mark
    read -r status < "$run/status"
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
    # What the server before had to say is no sign of this one.
    : > "$run/server"
    # Nor is what is left of one that was killed, and may not be gone yet.
    soon 30 "! { $2; }"
    setsid timeout -s KILL "$1" sh -c ". $helpers; $3" < /dev/null > "$run/server" 2>&1 &
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

# The machine that has the servers of what follows.
serving=0

# duet SECONDS NAME READY SERVER CLIENT: a server on machine $serving and, as soon as READY is true there, its client on
# the other; or both on the only machine there is.
duet() {
    meetings=$((meetings + 1))
    begin "$2"
    case $((me != serving))$machines in
    01)
        start "$1" "$3" "$4"
        client=1
        if [ $begun = yes ]; then
            run "$1" "$5"
            client=$status
        fi
        finish "$client"
        echo "client $client, server $status:" | mark
        mark < "$run/server"
        [ "$client" = 0 ] || status=$client
        ;;
    02)
        serve "$@"
        finish "$answer"
        mark < "$run/server"
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
    case $((me != serving)) in
    0)
        serve "$@"
        finish 1
        mark < "$run/server"
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
