# Without "Default" in its list, OpenSM makes every port but its own a limited member of the default partition.
third=fe80::2:c903:0:301
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm"'; echo "Red=0x0003 : ALL=full ;" > /run/osm/partitions; manager'
    step 90 'ports come up' "$osm"'; until_true "active mlx5_0 && active mlx5_1"; grep . /sys/class/infiniband/mlx5_*/ports/1/pkeys/[01]'
    step 60 'only the manager is a full member' 'cd /sys/class/infiniband && until_true "grep -q 0xffff mlx5_0/ports/1/pkeys/0" &&
        until_true "grep -q 0x7fff mlx5_1/ports/1/pkeys/0"'
else
    step 90 'ours comes up' "until_true '$ours ibv_devinfo | grep -q PORT_ACTIVE'"
    step 60 'ours is a limited member' "$example/devinfo --device vfio:$card"
fi
barrier
if [ "$me" = 1 ]; then
    step 60 'limited to limited' "begin=\$(date +%s)
        timeout 30 $example/ucmatose --device vfio:$card -b gid -s gid:$third > /run/limited 2>&1; status=\$?
        took=\$((\$(date +%s) - begin)); cat /run/limited; echo \"status \$status after \$took s\"
        [ \$status != 0 ] && [ \$status != 124 ] && [ \$took -lt 20 ]"
fi
barrier
# For Linux's list of devices (see ours.sh).
if [ "$me" = 0 ]; then
    step 60 'another partition' "$osm"'; echo "Green=0x0002 : ALL=full ;" >> /run/osm/partitions &&
        kill -HUP $(cat /run/osm/process) && until_true "grep -q 0x8002 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*"'
fi
barrier
serving=0
client_server 120 'limited to full' "$waits" \
    "ucmatose -f gid -b $theirs" "$example/ucmatose --device vfio:$card -b gid -s gid:$theirs"
barrier
if [ "$me" = 0 ]; then
    step 60 'manager ends' "$osm"'; end_manager TERM'
fi
