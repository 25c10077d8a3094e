#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   ibnetdiscover --diff, which compares a fabric with a saved one, reports a link that fell from 4X to 1X and a switch of another name, and ends
#          like diff: 0 without differences, else 1.
# Seen:    Width and speed are compared by no check at all, not even with all keys of --diffcheck: silence, though both stand in each line that it
#          would print. A new name shows only with the key nodedesc, which the default leaves out. The exit code is 0 even when it prints differences.
# Matters: The usual fault of a cable, a link that trains at a lower width, passes such a check: compare the ports' report of ibnetdiscover -p.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils
keys='sw,ca,router,port,lid,nodedesc'
fabric '' 'ibnetdiscover --cache saved >/dev/null; echo "saved: exit code $?"' <<<"$two_hosts" >"$seen"
rm "$tmp/share/ibsim.in"
echo 'The link of H2 is 1X instead of 4X:' >>"$seen"
fabric '' 'ibnetdiscover -p' 'ibnetdiscover --diff saved; echo "--diff: exit code $?"' "ibnetdiscover --diff saved --diffcheck $keys; echo '--diffcheck $keys: exit code' \$?" \
    < <(sed -E 's/("H2"\[1\]|"S1"\[2\])$/\1 w=1/' <<<"$two_hosts") | grep -vE "'S1'$" >>"$seen"
rm "$tmp/share/ibsim.in"
echo 'The switch has another name:' >>"$seen"
fabric '' 'ibnetdiscover --diff saved; echo "--diff: exit code $?"' 'ibnetdiscover --diff saved --diffcheck sw,nodedesc; echo "--diffcheck sw,nodedesc: exit code $?"' \
    < <(sed 's/"S1"/"core"/' <<<"$two_hosts") >>"$seen"
check <<'OUT'
saved: exit code 0
The link of H2 is 1X instead of 4X:
CA     1  1 0x0000000000100001 4x SDR - SW     2  1 0x0000000000200000 ( 'H1' - 'S1' )
SW     2  2 0x0000000000200000 1x SDR - CA     3  1 0x0000000000100003 ( 'S1' - 'H2' )
SW     2  1 0x0000000000200000 4x SDR - CA     1  1 0x0000000000100001 ( 'S1' - 'H1' )
CA     3  1 0x0000000000100003 1x SDR - SW     2  2 0x0000000000200000 ( 'H2' - 'S1' )
--diff: exit code 0
--diffcheck sw,ca,router,port,lid,nodedesc: exit code 0
The switch has another name:
--diff: exit code 0

vendid=0x0
devid=0x0
sysimgguid=0x200000
switchguid=0x200000(200000)
< Switch	4 "S-0000000000200000"		# "S1" base port 0 lid 2 lmc 0
> Switch	4 "S-0000000000200000"		# "core" base port 0 lid 2 lmc 0
--diffcheck sw,nodedesc: exit code 0
OUT
echo ok
