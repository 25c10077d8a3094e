#!/usr/bin/env bash
# Package: ucx-utils 1.18.1 (Debian 13).
# Guess:   UCX_RC_VERBS_PATH_MTU takes the five MTUs of InfiniBand, 256 to 4096, and an unknown value falls back to the default.
# Seen:    256 is refused; the list begins at 512. A refused value does not fall back to the default either: none of the transport's 58 settings
#          is listed any more.
# Matters: A peer with an active MTU of 256 cannot be matched by UCX's setting; a test of MTU 256 needs another program.
source "$(dirname "$0")/lib.sh"
debs trixie ucx-utils=1.18.1+ds-2+b1 coreutils
for value in default 512 256; do
    run env UCX_RC_VERBS_PATH_MTU=$value ucx_info -c >"$tmp/out" 2>&1 || true
    echo "$value: $(grep -oE 'Invalid value.*|UCX_RC_VERBS_PATH_MTU=.*' "$tmp/out" || true); settings of rc_verbs shown: $(grep -c ^UCX_RC_VERBS "$tmp/out" || true)"
done >"$seen"
check <<'OUT'
default: UCX_RC_VERBS_PATH_MTU=default; settings of rc_verbs shown: 58
512: UCX_RC_VERBS_PATH_MTU=512; settings of rc_verbs shown: 58
256: Invalid value for PATH_MTU: '256'. Expected: [default|512|1024|2048|4096]; settings of rc_verbs shown: 0
OUT
echo ok
