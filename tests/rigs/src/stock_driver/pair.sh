#!/usr/bin/busybox sh
# pair SERVER CLIENT: runs two commands, the second when the first listens; both have to succeed.
$1 > /server 2>&1 &
server=$!
until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 [0-9A-F:]* 0A'; do
    kill -0 $server || break
    usleep 50000
done
timeout -s KILL 60 $2
client=$?
# A server whose client failed waits for ever.
[ $client = 0 ] || kill -KILL $server
wait $server
server=$?
echo "client $client, server $server:"
cat /server
[ $client = 0 ] && [ $server = 0 ]
