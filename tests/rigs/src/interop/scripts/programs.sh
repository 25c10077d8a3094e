# rdma-core's programs and ours of the same name.
# An emulated machine may take longer to answer a hundred requests than our first repetition waits.
here="--link $wire --interrupts --patient"
# A server without the client's address in its cache resolves it before it answers, and queues eight messages meanwhile:
# more that come at once are lost, and are repeated. A guest whose neighbour table is empty resolves the server's
# address first.
ask='ip neighbour flush all'
for program in 'ucmatose -c 100' 'ucmatose -c 10 -C 20 -S 2000' 'udaddy -c 10' 'rdma_client'; do
    name=${program%% *}
    server=$program
    [ "$name" != rdma_client ] || server=rdma_server
    own=-b
    [ "$name" != rdma_client ] || own=-s
    serving=1
    client_server 180 "$program, to our server" "$ready" "$ours/$server $here $own 10.0.0.2" "$ask; $program -s 10.0.0.2"
    serving=0
    client_server 180 "$program, to their server" listening_cm "$server" "$ours/$program $here -b 10.0.0.3 -s 10.0.0.1"
done
# rdma-core's waits for a message over TCP before it asks for a connection, and makes three rounds of them.
serving=1
client_server 180 'cmtime, to our server' "$ready" "$ours/cmtime $here -b 10.0.0.2 -c 50 --in-step" 'cmtime -c 50 -s 10.0.0.2'
serving=0
client_server 180 'cmtime, to their server' 'listening 7471' 'cmtime -c 50' "$ours/cmtime $here -b 10.0.0.3 -s 10.0.0.1 -c 50 --in-step"
barrier
[ $me = 1 ] || step 180 'nothing was sent twice' "$not_twice"
