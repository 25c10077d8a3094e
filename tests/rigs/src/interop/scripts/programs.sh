# rdma-core's programs and ours of the same name.
here="--link $wire --interrupts"
for program in 'ucmatose -c 100' 'ucmatose -c 10 -C 20 -S 2000' 'udaddy -c 10' 'rdma_client'; do
    name=${program%% *}
    server=$program
    [ "$name" != rdma_client ] || server=rdma_server
    own=-b
    [ "$name" != rdma_client ] || own=-s
    serving=1
    duet 120 "$program, to our server" "$ready" "$ours/$server $here $own 10.0.0.2" "$program -s 10.0.0.2"
    serving=0
    duet 120 "$program, to their server" listening_cm "$server" "$ours/$program $here -b 10.0.0.3 -s 10.0.0.1"
done
# The server of rdma-core's version here never ends.
strike 120 'cmtime, to their server' listening_cm 'cmtime -c 50' "$ours/cmtime $here -b 10.0.0.3 -s 10.0.0.1 -c 50 --patient"
