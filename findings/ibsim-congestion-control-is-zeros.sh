#!/usr/bin/env bash
# Package: ibsim-utils 0.12, with infiniband-diags 56.1 and opensm 3.3.23 (Debian 13).
# Guess:   ibsim, which has no congestion control, leaves MADs of its class (0x21) without an answer, so that ibccquery and ibccconfig end with a timeout; or it has the
#          class, and what ibccconfig sets is read back.
# Seen:    Queries are answered with zeros and success: a host without a single entry of the control table seems to be a valid one. Setting a host's parameters
#          succeeds and changes nothing; setting a switch's fails at once.
# Matters: Success of ibccconfig on ibsim is no test of a congestion manager; read the setting back.
source "$(dirname "$0")/lib.sh"
debs trixie ibsim-utils=0.12-1 infiniband-diags=56.1-1 opensm=3.3.23-3.1 bash coreutils
fabric '' 'for lid in 2 3; do ibccquery CongestionInfo $lid; echo "exit code $?"; done' \
    'echo set of a host:; ibccconfig CACongestionSetting 3 0 0x3 150 1 2 0; echo "exit code $?"; ibccquery CACongestionSetting 3 | head -n 8' \
    'echo set of a switch:; ibccconfig SwitchCongestionSetting 2 0x1F 0x6 0x0 0xF 8 0 0:0 1; echo "exit code $?"' <<<"$two_hosts" >"$seen"
check <<'OUT'
# CongestionInfo: Lid 2
CongestionInfo:..................0x0000
ControlTableCap:.................0
exit code 0
# CongestionInfo: Lid 3
CongestionInfo:..................0x0000
ControlTableCap:.................0
exit code 0
set of a host:
exit code 0
# CACongestionSetting: Lid 3
Port_Control:....................0x0000
Control_Map:.....................0x0000

SL:..............................0
CCTI_Timer:......................0
CCTI_Increase:...................0
Trigger_Threshold:...............0
set of a switch:
ibccconfig: iberror: failed: operation SwitchCongestionSetting: switch congestion setting config failed
exit code 255
OUT
echo ok
