# How a machine runs its script, and communicates with the one that runs it.
#
# It communicates with the host that runs it over the console, by lines:
#
#   @@ up             this machine listens; the answer is its number, how many machines there are, how often it booted
#   @@ step NAME      a step begins; `@out` is what it prints, `@status` how it ended, `@log` the kernel's messages
#   @@ done NAME      it is over
#   @@ send WORD      for the other machine, which gets WORD
#   @@ down           this machine boots again, and reads no more until then
#   @@ host EVENT...  the host is to do something to the card
#   @@ monitor LINE   the host is to execute a command of QEMU's monitor on this machine
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
exchanges=0
received=' '

# send_word NAME WORD: sends the other machine a word under a name.
send_word() {
    echo "@@ send $1=$2"
}

# await NAME: waits for the other machine's word under the name, and leaves it in $answer.
await() {
    while :; do
        case "$received" in
        *" $1="*)
            answer=${received#*" $1="}
            answer=${answer%% *}
            return
            ;;
        esac
        if ! read -r -t "$idle_limit" word; then
            echo "@@ lost $1"
            halt
        fi
        received="$received$word "
    done
}

# barrier: waits until the other machine has come to its barrier as well.
barrier() {
    exchanges=$((exchanges + 1))
    if [ "$machines" = 2 ]; then
        send_word "$exchanges.met" yes
        await "$exchanges.met"
    fi
}

# exchange NAME COMMAND: sends the other machine the word that the command prints, and leaves the word received in
# $answer.
exchange() {
    exchanges=$((exchanges + 1))
    send_word "$exchanges.$1" "$(eval "$2")"
    await "$exchanges.$1"
}

# ask FUNCTION WHAT: leaves in $answer the model's state of a function: how many `commands` it completed, how many bytes
# of memory are in its `reach`, whether it is bus `master`, how many `doorbells` of send queues it saw, and of the
# requests that came through them how many it took as they came (`blue-flame`) or had to fetch (`blue-flame-missed`), how
# many completions were `compressed`, and what is set of the port, by the names that `control.rs` of the server has.
asked=0
ask() {
    asked=$((asked + 1))
    echo "@@ ask $asked.$2 $1 $2"
    await "$asked.$2"
}

# mark: writes its standard input to the console as the output of a step.
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
# $server is its process (and process group), $started whether READY became true.
start() {
    # Output of the previous server says nothing about this one.
    : > "$run/server"
    # Nor does a server that was killed and may still exist.
    within 30 "! { $2; }"
    setsid timeout -s KILL "$1" sh -c ". $helpers; $3" < /dev/null > "$run/server" 2>&1 &
    server=$!
    started=yes
    until eval "$2"; do
        if ! kill -0 $server 2> /dev/null; then
            started=no
            break
        fi
        usleep 50000
    done
}

# finish STATUS: waits for the server; kills it first if its client failed, as it would wait for ever.
finish() {
    [ "$1" = 0 ] || kill -KILL -$server 2> /dev/null
    wait $server
    status=$?
}

# The machine with the servers of the following steps.
serving=0

# client_server SECONDS NAME READY SERVER CLIENT: a server on machine $serving and, once READY is true there, its client
# on the other machine; or both on the only machine.
client_server() {
    exchanges=$((exchanges + 1))
    begin "$2"
    case $((me != serving))$machines in
    01)
        start "$1" "$3" "$4"
        client=1
        if [ $started = yes ]; then
            run "$1" "$5"
            client=$status
        fi
        finish "$client"
        echo "client $client, server $status:" | mark
        mark < "$run/server"
        [ "$client" = 0 ] || status=$client
        ;;
    02)
        server_side "$@"
        finish "$answer"
        mark < "$run/server"
        ;;
    12) client_side "$@" ;;
    esac
    end "$2" "$status"
}

# client_server_fault SECONDS NAME READY SERVER CLIENT: a client_server in which a fault happens on the client's
# machine. The server may end by it, and is killed otherwise.
client_server_fault() {
    exchanges=$((exchanges + 1))
    begin "$2"
    case $((me != serving)) in
    0)
        server_side "$@"
        finish 1
        mark < "$run/server"
        status=$answer
        ;;
    1) client_side "$@" ;;
    esac
    end "$2" "$status"
}

# The server's side: starts the server, and waits until the client has ended.
server_side() {
    start "$1" "$3" "$4"
    send_word $exchanges.started $started
    await $exchanges.client
}

# The client's side.
client_side() {
    await $exchanges.started
    status=1
    if [ "$answer" = yes ]; then
        run "$1" "$5"
    else
        echo "the server did not start" | mark
    fi
    send_word $exchanges.client "$status"
}
