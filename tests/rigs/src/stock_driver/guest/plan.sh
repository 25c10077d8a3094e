# Prints which steps a script will run, by running it with functions that only print the steps' names. `me`, `machines`
# and `boot` are given.
run= helpers= ours= wire=
step() { echo "$2"; }
client_server() { echo "$2"; }
client_server_fault() { echo "$2"; }
barrier() { :; }
host() { :; }
monitor() { :; }
until_true() { :; }
ask() { answer=0; }
send_word() { :; }
await() { answer=; }
exchange() { answer=; }
restart() { exit 0; }
