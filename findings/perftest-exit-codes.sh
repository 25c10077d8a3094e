#!/usr/bin/env bash
# Package: perftest 25.01.0 (Debian 13).
# Guess:   --version and --help end with 0, a machine without an adapter with the same code for each of the twelve programs, and sizes may have the suffixes K, M and G:
#          3G and more is refused, as 2147483648 is.
# Seen:    --version and --help end with 1, as an error does. Without an adapter ib_read_bw and ib_atomic_bw end with 7, the others with 1. A suffix other than K and M, or
#          any other letters behind the number, are dropped without a word, so 3G and 12abc are taken though 3072M is refused. "-S 16" is refused with "Only 15 Service
#          levels" of the 16.
# Matters: Scripts that drive perftest as a peer read its output, not its exit code, and give sizes in bytes.
source "$(dirname "$0")/lib.sh"
debs trixie perftest=25.01.0+0.80-1
{
    echo "exit codes of --version, of --help and without an adapter:"
    for program in ib_{write,read,send,atomic}_{bw,lat} raw_ethernet_{bw,lat,burst_lat,fs_rate}; do
        line=$program
        for option in --version --help ''; do
            code=0
            run $program $option >/dev/null 2>&1 || code=$?
            line+=" $code"
        done
        echo "$line"
    done
    for option in '-s 2147483647' '-s 2147483648' '-s 3072M' '-s 3G' '-s 12abc' '-S 15' '-S 16'; do
        # shellcheck disable=SC2086
        echo "ib_write_bw $option:$(run ib_write_bw $option 2>&1 | sed -n 1p)"
    done
} >"$seen"
check <<'OUT'
exit codes of --version, of --help and without an adapter:
ib_write_bw 1 1 1
ib_write_lat 1 1 1
ib_read_bw 1 1 7
ib_read_lat 1 1 1
ib_send_bw 1 1 1
ib_send_lat 1 1 1
ib_atomic_bw 1 1 7
ib_atomic_lat 1 1 1
raw_ethernet_bw 1 1 1
raw_ethernet_lat 1 1 1
raw_ethernet_burst_lat 1 1 1
raw_ethernet_fs_rate 1 1 1
ib_write_bw -s 2147483647: Did not detect devices 
ib_write_bw -s 2147483648: Message Size should be between 1 and 2147483647
ib_write_bw -s 3072M: Message Size should be between 1 and 2147483647
ib_write_bw -s 3G: Did not detect devices 
ib_write_bw -s 12abc: Did not detect devices 
ib_write_bw -S 15: Did not detect devices 
ib_write_bw -S 16: Only 15 Service levels
OUT
echo ok
