#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   A file that OpenSM is given by an option must exist: a missing configuration, a missing list of roots or an unknown routing engine is an error
#          on the terminal, and OpenSM does not start.
# Seen:    It starts with each of them and brings the subnet up. Of a missing partition file or file of prefix routes there is no word, on the terminal or
#          in the log; a missing configuration is named on the terminal as the one in use; a missing list of roots or QoS policy is a line in the log.
#          An engine of no known name is announced on the terminal as activated, and the log says that it cannot be found.
# Matters: A subnet with default partitions, LMC or routing may be one whose files were not found: compare with what the ports say.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
for options in '-F nosuch' '-P nosuch' '--prefix_routes_file nosuch' '-R updn -a nosuch' '-Q -Y nosuch' '-R nosuch'; do
    rm -rf "$tmp/share"
    echo "opensm $options"
    fabric "-d2 $options" 'cat osm.out' 'cat osm.log' <<<"$two_hosts" | grep -E 'nosuch|SUBNET UP' | grep -v OpenSM | sed 's/.*\] 0x/0x/; s/^ *//' | sort -u
done >"$seen"
check <<'OUT'
opensm -F nosuch
0x02 -> SUBNET UP
Config file is `nosuch`:
opensm -P nosuch
0x02 -> SUBNET UP
opensm --prefix_routes_file nosuch
0x02 -> SUBNET UP
opensm -R updn -a nosuch
0x01 -> updn_lid_matrices: ERR AA02: cannot parse root guids file 'nosuch'
0x02 -> SUBNET UP
Root Guid File: nosuch
opensm -Q -Y nosuch
0x01 -> osm_qos_parse_policy_file: ERR AC01: Failed opening QoS policy file nosuch - No such file or directory
0x02 -> SUBNET UP
QoS policy file 'nosuch'
opensm -R nosuch
0x01 -> setup_routing_engine: cannot find or setup routing engine 'nosuch'
0x01 -> setup_routing_engines: Failed to setup routing engine 'nosuch'
0x02 -> SUBNET UP
Activate 'nosuch' routing engine(s)
OUT
echo ok
