#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   Numbers on the command line are checked: a directed route with port 258, with a word in it or without its leading 0 is refused, as is a LID
#          that is no number.
# Seen:    Ports of a route are taken modulo 256 and a word is port 0, so that 0,1,258 asks port 2, and 0,1,x the switch itself. The first number may
#          be any: 7 is the local node as 0 is. saquery takes a LID that is no number as "not given" and lists the paths from every port. Only smpquery's
#          LID must begin with a digit; 3x is 3.
# Matters: A typing error in a route reaches another port, which matters with ibportstate; a script checks its numbers before it passes them on.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
commands=()
for arguments in '-D nd 0,1,2' '-D nd 0,1,258' '-D nd 0,1,x' '-D nd 7' 'nd 3x' 'nd x'; do
    commands+=("echo 'smpquery $arguments: '; smpquery $arguments; echo \"exit code \$?\"")
done
for lid in 3 x; do
    commands+=("echo 'saquery PR --slid $lid --dlid 1:'; saquery PR --slid $lid --dlid 1; echo \"exit code \$?\"")
done
# The record of slid 0 is the one that ibsim cuts off (ibsim-no-rmpp.sh).
fabric '' "${commands[@]}" <<<"$two_hosts" | grep -E '^(smpquery|saquery|Node Desc|exit)|slid\.' | sed -E 's/:?\.{4,}/: /; s/^\s+//' | grep -v 'slid: 0' >"$seen"
check <<'OUT'
smpquery -D nd 0,1,2: 
Node Description: H2
exit code 0
smpquery -D nd 0,1,258: 
Node Description: H2
exit code 0
smpquery -D nd 0,1,x: 
Node Description: S1
exit code 0
smpquery -D nd 7: 
Node Description: H2
exit code 0
smpquery nd 3x: 
Node Description: H2
exit code 0
smpquery nd x: 
smpquery: iberror: failed: can't resolve destination port x
exit code 255
saquery PR --slid 3 --dlid 1:
slid: 3
exit code 0
saquery PR --slid x --dlid 1:
slid: 2
slid: 1
exit code 0
OUT
echo ok
