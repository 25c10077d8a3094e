#!/usr/bin/env bash
# Package: ibsim-utils 0.12, infiniband-diags 56.1, opensm 3.3.23 (Debian 13).
# Guess:   ibportstate of a connected switch port compares width and speed with those of the port at the other end and ends with 0.
# Seen:    It asks the other end by an SMP that goes by LID to the switch and by directed route from there; the simulator drops it, so that each query of
#          an active switch port prints its PortInfo and ends with 255 after a timeout. By directed route alone both ends are reached.
# Matters: Combined routes, which the permissive DLID and the DrSLID of a directed-route SMP are for, cannot be tried on ibsim.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils
fabric '' 'ibportstate 2 1; echo "ibportstate 2 1 (connected): exit code $?"' 'ibportstate 2 3; echo "ibportstate 2 3 (not connected): exit code $?"' \
    'ibportstate -D 0,1 1; echo "ibportstate -D 0,1 1 (connected): exit code $?"' 'smpquery -D nodedesc 0,1,1' <<<"$two_hosts" |
    grep -E 'LinkState|dport|iberror|exit code|Node Desc|Peer' | sed -E 's/\[[0-9]+\]/[PID]/' >"$seen"
check <<'OUT'
ibwarn: [PID] mad_rpc: _do_madrpc failed; dport (Lid 2 DR path slid 3; dlid 65535; 0,1)
LinkState:.......................Active
PhysLinkState:...................LinkUp
ibportstate: iberror: failed: smp query nodeinfo failed
ibportstate 2 1 (connected): exit code 255
LinkState:.......................Down
PhysLinkState:...................Polling
ibportstate 2 3 (not connected): exit code 0
LinkState:.......................Active
PhysLinkState:...................LinkUp
Peer PortInfo:
LinkState:.......................Active
PhysLinkState:...................LinkUp
ibportstate -D 0,1 1 (connected): exit code 0
Node Description:..............................H1
OUT
echo ok
