#!/usr/bin/env bash
# Package: tshark 4.4.19 (Debian 13).
# Guess:   The AETH's credit code is translated as the RNR timer's code is: code 10 is 32 credits, 30 is 32768, and 31 "no credits" (the end-to-end
#          flow control is not used).
# Seen:    The code itself is called "Credit Count", so that the RNR timer's code 10 is shown as 0.32 ms, but the credits' code 10 as 10 credits,
#          and the invalid code of every adapter's ACK as a count of 31.
# Matters: 31 in a trace is no grant of 31 messages: a sender with a shared receive queue has no credits at all.
source "$(dirname "$0")/lib.sh"
debs trixie tshark=4.4.19-0+deb13u1
for syndrome in 0a 1e 1f 2a; do
    echo "11 40 ffff 00 000012 00000005  $syndrome 000003"
done | packets roce ack.pcap
dissect ack.pcap -V | grep -E 'Credit Count|Timer:' | sed 's/^ *//' >"$seen"
check <<'OUT'
...0 1010 = Credit Count: 10
...1 1110 = Credit Count: 30
...1 1111 = Credit Count: 31
...0 1010 = Timer: 0.32 ms (10)
OUT
echo ok
