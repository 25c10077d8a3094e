# This computer as one of the machines: it runs the same script, and is not halted. $run, $helpers, $ours (where this
# repository's programs are) and $wire (the end of the network's cable, as a --link has it) are given.

# This computer's kernel log is not about the test.
kernel_log() {
    :
}

halt() {
    exit
}

. "$session"
. "$script"
echo "@@ end"
