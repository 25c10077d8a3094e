# Says which steps a script will run, by running it with functions that do nothing else. `me`, `machines` and `boot` are
# given.
run= helpers= ours= wire=
step() { echo "$2"; }
duet() { echo "$2"; }
strike() { echo "$2"; }
meet() { :; }
host() { :; }
monitor() { :; }
until_true() { :; }
ask() { answer=0; }
tell() { :; }
await() { :; }
exchange() { answer=; }
restart() { exit 0; }
