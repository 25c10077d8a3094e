# The unikernel is on this computer, as our programs are in the other scenarios.
# The time limit of the first server is not for the guest's boot.
barrier
for way in x86_64/10.0.0. x86_64/fd00:: aarch64/fd00::; do
    net=${way#*/}
    unikernel="$ours/unikernel ${way%/*} $wire"
    serving=1
    # Who is slow to answer for its address is asked again.
    client_server 90 "rdma-core's client, the unikernel's server, $way" "$ready" "$unikernel server address=${net}2 interrupts" \
        "until_true 'ping -c 1 ${net}2'; rping -c -a ${net}2 -C 20 -S 4096 -V"
    serving=0
    client_server 90 "the unikernel's client, rdma-core's server, $way" listening_cm \
        "rping -s -a ${net}1 -C 20 -S 4096 -V" "$unikernel client=${net}1 address=${net}3 count=20 interrupts"
done
