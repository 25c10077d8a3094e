# This computer as one of the machines: it runs the same script, and halts nobody. $run, $helpers, $ours (where this
# repository's programs are) and $wire (the end of the network's cable, as a --link has it) are given.

# What the kernel says here is about other things.
kernel_log() {
    :
}

halt() {
    exit
}

. "$session"
. "$script"
echo "@@ end"
