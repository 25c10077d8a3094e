#!/usr/bin/env bash
# Package: infiniband-diags 56.1 on ibsim-utils 0.12 and opensm 3.3.23 (Debian 13).
# Guess:   iblinkinfo --load-cache, which reads the topology that ibnetdiscover --cache saved, works on any machine, as ibnetdiscover --load-cache does: the states,
#          widths and speeds that it prints are in the file.
# Seen:    Without an open port of an adapter it ends with exit code 1 and prints no link; ibnetdiscover --load-cache -p prints the same links there. With a port
#          it prints what the file says.
# Matters: A saved fabric is looked at elsewhere with ibnetdiscover only; its option -p has width and speed of each link.
source "$(dirname "$0")/lib.sh"
debs trixie infiniband-diags=56.1-1 ibsim-utils=0.12-1 opensm=3.3.23-3.1 bash coreutils grep
fabric '' 'ibnetdiscover --cache saved >/dev/null' 'echo with a port:' 'iblinkinfo --load-cache saved | grep -c LinkUp; echo "exit code ${PIPESTATUS[0]}"' \
    'echo without:' 'unset LD_PRELOAD; iblinkinfo --load-cache saved 2>&1 | grep -vi abi; echo "exit code ${PIPESTATUS[0]}"' \
    'unset LD_PRELOAD; ibnetdiscover --load-cache saved -p | grep SW; echo "exit code ${PIPESTATUS[0]}"' <<<"$two_hosts" | sed -E 's/ibwarn: \[[0-9]+\]/ibwarn:/' >"$seen"
check <<'OUT'
with a port:
4
exit code 0
without:
ibwarn: get_smi_gsi_pair: Can't open SMI UMAD port (Operation not supported) (:0)
ibwarn: mad_rpc_open_port2: can't open UMAD port ((null):0)
Failed to open (null) port 0
exit code 1
CA     1  1 0x0000000000100001 4x SDR - SW     2  1 0x0000000000200000 ( 'H1' - 'S1' )
SW     2  4 0x0000000000200000 4x SDR                                    'S1'
SW     2  3 0x0000000000200000 4x SDR                                    'S1'
SW     2  2 0x0000000000200000 4x SDR - CA     3  1 0x0000000000100003 ( 'S1' - 'H2' )
SW     2  1 0x0000000000200000 4x SDR - CA     1  1 0x0000000000100001 ( 'S1' - 'H1' )
CA     3  1 0x0000000000100003 4x SDR - SW     2  2 0x0000000000200000 ( 'H2' - 'S1' )
exit code 0
OUT
echo ok
