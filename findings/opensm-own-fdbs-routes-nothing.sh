#!/usr/bin/env bash
# Package: opensm 3.3.23, on ibsim-utils 0.12, with infiniband-diags 56.1 (Debian 13).
# Guess:   OpenSM that writes its forwarding tables into two files, opensm-lfts.dump and opensm.fdbs, routes by either one with -R file -U, or says of the
#          wrong one that it cannot be read and routes by its own algorithm, as it does when the file is missing.
# Seen:    opensm.fdbs is taken without a line in the log, and nothing in it is understood: the switch gets no table, so that neither hosts nor the
#          switch are reached by their LIDs, although the links are Active. opensm-lfts.dump does what it should.
# Matters: A subnet that is up may have no routes at all, and every query and CM request times out; look for the tables themselves (ibroute by directed route).
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils grep
mkdir -p "$tmp/share"
fabric '-D 0x43' 'cp /var/log/opensm.fdbs fdbs; cp /var/log/opensm-lfts.dump lfts' <<<"$two_hosts" >/dev/null
for tables in lfts fdbs missing; do
    echo "tables: $tables"
    rm "$tmp/share/ibsim.in" "$tmp/share/osm.log"
    rm -f "$root"/var/cache/opensm/*
    fabric "-R file -U $tables" 'grep -oE "do_ucast_file_load: .*|ucast_mgr_route: .*" osm.log' 'ibroute -D 0,1 | tail -n 4' \
        'smpquery nodedesc 1 2>&1 | tail -n 1' <<<"$two_hosts"
done >"$seen"
check <<'OUT'
tables: lfts
0x0001 001 : (Channel Adapter portguid 0x0000000000100001: 'H1')
0x0002 000 : (Switch portguid 0x0000000000200000: 'S1')
0x0003 002 : (Channel Adapter portguid 0x0000000000100003: 'H2')
3 valid lids dumped 
Node Description:..............................H1
tables: fdbs
Unicast lids [0x0-0x3] of switch DR path slid 65535; dlid 65535; 0,1 guid 0x0000000000200000 (S1):
  Lid  Out   Destination
       Port     Info 
0 valid lids dumped 
smpquery: iberror: failed: operation nodedesc: node info query failed
tables: missing
do_ucast_file_load: ERR 6302: Can't open ucast dump file 'missing': No such file or directory
ucast_mgr_route: file: cannot build fwd tables
0x0001 001 : (Channel Adapter portguid 0x0000000000100001: 'H1')
0x0002 000 : (Switch portguid 0x0000000000200000: 'S1')
0x0003 002 : (Channel Adapter portguid 0x0000000000100003: 'H2')
3 valid lids dumped 
Node Description:..............................H1
OUT
echo ok
