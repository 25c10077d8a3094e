#!/usr/bin/env bash
# Package: ucx-utils 1.18.1 (Debian 13).
# Guess:   UCX takes a service level in decimal or hex (0x3), and refuses what is no number of its range; P_Keys likewise.
# Seen:    UCX_RC_VERBS_SL=0x3 is read up to the x, as service level 0, without a word; 255 is taken though a service level has four bits.
#          P_Keys are the reverse: they must begin with 0x, "8001" is an error, and 0x18001 with 17 bits is taken.
# Matters: A job that sets its SL in hex runs on SL 0 and so in another PFC class; what the peer's UCX uses shows only in the packets.
source "$(dirname "$0")/lib.sh"
debs trixie ucx-utils=1.18.1+ds-2+b1 coreutils
for setting in SL=3 SL=0x3 SL=255 PKEY=0x8001 PKEY=8001 PKEY=0x18001; do
    echo "UCX_RC_VERBS_$setting: $(run env "UCX_RC_VERBS_$setting" ucx_info -c 2>&1 | grep -oE "UCX_RC_VERBS_${setting%=*}=.*|Invalid value for ${setting%=*}: .*" || true)"
done >"$seen"
check <<'OUT'
UCX_RC_VERBS_SL=3: UCX_RC_VERBS_SL=3
UCX_RC_VERBS_SL=0x3: UCX_RC_VERBS_SL=0
UCX_RC_VERBS_SL=255: UCX_RC_VERBS_SL=255
UCX_RC_VERBS_PKEY=0x8001: UCX_RC_VERBS_PKEY=0x8001
UCX_RC_VERBS_PKEY=8001: Invalid value for PKEY: '8001'. Expected: hex representation of a number or "auto"
UCX_RC_VERBS_PKEY=0x18001: UCX_RC_VERBS_PKEY=0x18001
OUT
echo ok
