#!/usr/bin/env bash
# Package: opensm 3.3.23 (Debian 13), on ibsim 0.12.
# Guess:   With honor_guid2lid_file FALSE, the default, OpenSM assigns LIDs anew to a fabric whose ports have none: 1, 2, 3.
# Seen:    It reads /var/cache/opensm/guid2lid all the same. After a run with LMC 2 (hosts from LID 4 and 12, the switch 8) a new fabric, powered up with
#          LID 0 everywhere and managed without LMC, gets 4, 8 and 12 again. The option only says whether a standby manager trusts
#          the file when it takes over.
# Matters: Tests on simulated fabrics must empty that folder, or LIDs depend on earlier runs; a port's LID may be what it had before its own reset.
source "$(dirname "$0")/lib.sh"
debs trixie opensm=3.3.23-3.1 ibsim-utils=0.12-1 infiniband-diags=56.1-1 bash coreutils
mkdir -p "$root/var/cache/opensm"
for options in '' '-l 2' ''; do
    [ -n "$options" ] && rm -f "$root"/var/cache/opensm/*
    rm -rf "$tmp/share"
    echo "opensm $options: $(fabric "$options" ibnetdiscover 'cat osm.out' <<<"$two_hosts" | grep -oE '# "(H1|H2|S1)" (lid|base).*' | grep -oE '"(H1|H2|S1)"|lid [0-9]+ lmc [0-9]|lid [0-9]+' | tr '\n' ' ')"
done >"$seen"
check <<'OUT'
opensm : "S1" lid 2 lmc 0 "H1" lid 1 "H2" lid 3 
opensm -l 2: "S1" lid 8 lmc 0 "H1" lid 4 "H2" lid 12 
opensm : "S1" lid 8 lmc 0 "H1" lid 4 "H2" lid 12 
OUT
echo ok
