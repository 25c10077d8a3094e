#!/usr/bin/env bash
# Package: perftest 25.01.0 (Debian 13).
# Guess:   -x takes each index that the port's GID table has (255 entries on current RoCE ports); the device's answer decides. The help text's
#          range of -T, 0 to 256, is the range that is accepted.
# Seen:    The parser refuses indexes above 64 before it looks for a device. -T 256 is refused, and -S 16 with "Only 15 Service levels" though
#          15 passes, so sixteen levels there are. An argument that passes gets as far as "Did not detect devices".
# Matters: perftest as a peer cannot use GIDs above index 64, which a host with many VLAN or IP addresses has; move the address to a lower index.
source "$(dirname "$0")/lib.sh"
debs trixie perftest=25.01.0+0.80-1
for arguments in '-x 64' '-x 65' '-S 15' '-S 16' '-R -T 255' '-R -T 256'; do
    # shellcheck disable=SC2086
    echo "ib_write_bw $arguments: $(run ib_write_bw $arguments 2>&1 | grep -v '^ *$' | sed -n '1s/^ *//; 1s/ *$//; 1p')"
done >"$seen"
{ run ib_write_bw --help || true; } | grep -oE 'Set <tos_value>.*' >>"$seen"
check <<'OUT'
ib_write_bw -x 64: Did not detect devices
ib_write_bw -x 65: Gid index should be between 0 and 64
ib_write_bw -S 15: Did not detect devices
ib_write_bw -S 16: Only 15 Service levels
ib_write_bw -R -T 255: Did not detect devices
ib_write_bw -R -T 256: TOS should be between 0 and 255
Set <tos_value> to RDMA-CM QPs. available only with -R flag. values 0-256 (default off)
OUT
echo ok
