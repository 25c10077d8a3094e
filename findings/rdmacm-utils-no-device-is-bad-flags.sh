#!/usr/bin/env bash
# Package: rdmacm-utils and ibverbs-utils 56.1 (Debian 13).
# Guess:   On a machine without an adapter the example programs say so and end with one code; help ends with 0.
# Seen:    rdma_server, rdma_client and cmtime say "Bad value for ai_flags": they pass rdma_getaddrinfo's -1 to gai_strerror, and the errno, ENODEV, is not printed (cmtime
#          asks once more and prints both). The exit codes are 1, 19 (ENODEV) and 255, of help 1, 22 and 255.
# Matters: A text about flags from these programs is any error of rdma_getaddrinfo: a program on our library that prints gai_strerror says the same.
source "$(dirname "$0")/lib.sh"
debs trixie rdmacm-utils=56.1-1 ibverbs-utils=56.1-1 coreutils
for command in rdma_server 'rdma_client -s 127.0.0.1' 'cmtime -s 127.0.0.1' 'rping -s' ucmatose 'riostream -s 127.0.0.1' ibv_rc_pingpong ibv_devinfo; do
    code=0 help=0
    # shellcheck disable=SC2086
    run timeout 20 $command >"$tmp/said" 2>&1 || code=$?
    run timeout 20 "${command%% *}" -h >/dev/null 2>&1 || help=$?
    echo "$command: exit code $code, of help $help: $(grep -vE 'start|end|name ' "$tmp/said" | paste -sd ';')"
done >"$seen"
check <<'OUT'
rdma_server: exit code 255, of help 1: rdma_getaddrinfo: Bad value for ai_flags
rdma_client -s 127.0.0.1: exit code 255, of help 1: rdma_getaddrinfo: Bad value for ai_flags
cmtime -s 127.0.0.1: exit code 1, of help 1: get_rdma_addr: No such device;rdma_getaddrinfo error: Bad value for ai_flags
rping -s: exit code 19, of help 22: No RDMA devices were detected
ucmatose: exit code 1, of help 1: No RDMA devices were detected
riostream -s 127.0.0.1: exit code 255, of help 1: No RDMA devices were detected
ibv_rc_pingpong: exit code 1, of help 1: Failed to get IB devices list: Function not implemented
ibv_devinfo: exit code 255, of help 255: Failed to get IB devices list: Function not implemented
OUT
echo ok
