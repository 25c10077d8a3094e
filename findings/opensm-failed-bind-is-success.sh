#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   OpenSM that is told to run on a port GUID that the machine does not have (-g, as after a card was replaced) ends with an error code.
# Seen:    It prints "Error from osm_opensm_bind (0x2A)", its log says that the port cannot be found, and it ends with exit code 0, as after a clean
#          stop. An LMC out of range ends with 255, an unknown option with 2.
# Matters: A service manager that restarts on failure leaves such a subnet manager stopped; a script has to look at the port's SM LID or at the log.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
fabric '' 'opensm -g 0x77 -f other.log; echo "exit code of -g: $?"' 'cat other.log' 'opensm -l 8 -f other.log; echo "exit code of -l: $?"' \
    'opensm --nosuch -f other.log; echo "exit code of --nosuch: $?"' <<<"$two_hosts" |
    grep -E '^exit code|^Error|^ERROR|ERR 54|unrecog' | grep -v 'ERR 5405' | sed 's/.*\] 0x01 -> //' | uniq >"$seen"
check <<'OUT'
Error from osm_opensm_bind (0x2A)
exit code of -g: 0
osm_vendor_open_port: ERR 5422: Unable to find requested CA guid 0x77
osm_vendor_bind: ERR 5424: Unable to open port 0x77
ERROR: LMC must be 7 or less.
exit code of -l: 255
opensm: unrecognized option '--nosuch'
exit code of --nosuch: 2
OUT
echo ok
