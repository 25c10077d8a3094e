# Each port has two identifiers. Linux's end is machine 0's, with the manager, which sleeps while the cable is cut: it would
# find the identifiers another way.
step 60 'functions for paths' 'cat >> /run/osm/functions <<"LIST"
# The cables that lead to our two identifiers, and to Linux own.
ways() {
    for low in 0 1; do
        echo "$(by 1 $(($(cat /run/osm/ours) + low))) $(by 2 $(($(number mlx5_0 lid) + low)))"
    done
}
# bits: the low bits of the identifiers, Linux and ours, that lead over the first cable, then over the second.
bits() {
    for cable in 3 4; do
        for column in 2 1; do
            awk -v cable="$cable" "\$$column == cable { printf \"%d\", NR - 1 }" /run/osm/ways
        done
    done
}
LIST
'
if [ "$me" = 0 ]; then
    step 60 'manager' "$osm; manager -l 1"
    step 90 'port comes up' "$osm"'; until_true "active mlx5_0 && [ \$(number mlx5_0 lid_mask_count) = 1 ]"; ibstat mlx5_0 1'
else
    step 90 'ours comes up' "until_true '$ours ibv_devinfo | grep -q PORT_ACTIVE'; $ours ibv_devinfo"
fi
barrier
# As with `ours`: binding to a GID needs one more event.
if [ "$me" = 0 ]; then
    step 60 'another partition' "$osm"'; echo "Green=0x0002 : ALL=full ;" >> /run/osm/partitions &&
        kill -HUP $(cat /run/osm/process) && until_true "grep -q 0x8002 /sys/class/infiniband/mlx5_0/ports/1/pkeys/*"'
fi
barrier
exchange lid "if [ $me = 0 ]; then $osm; number mlx5_0 lid; else $ours ibv_devinfo | awk '/port_lid/ { print \$2 }'; fi"
lid=$answer
if [ "$me" = 0 ]; then
    step 90 'each identifier has its cable' "$osm; echo '$lid' > /run/osm/ours; until_true spread; ways | tee /run/osm/ways"
fi
exchange bits "if [ $me = 0 ]; then $osm; bits; else echo none; fi"
bits=$answer
if [ "$me" = 0 ]; then
    step 60 'server' "ucmatose -f gid -b $theirs > /run/server 2>&1 < /dev/null &
        until_true '$waits'"
fi
barrier
if [ "$me" = 1 ]; then
    program="/ours/migration $theirs '$lid' '$bits' /run/cut /run/mended"
    step 90 'armed' "{ BAREVERBS_DEVICE=vfio:$card $program > /run/program 2>&1 < /dev/null & }
        until_true 'grep -Eq \"^(path|Error)\" /run/program'; cat /run/program"
fi
barrier
if [ "$me" = 0 ]; then
    step 60 'manager sleeps' "$osm"'; [ "$(ways)" = "$(cat /run/osm/ways)" ] && kill -STOP "$(cat /run/osm/process)"'
    host cable 0 3 down
fi
barrier
if [ "$me" = 1 ]; then
    step 60 'both ends migrate' "touch /run/cut
        until_true 'grep -Eq \"^(path Migrated|Error)\" /run/program'; cat /run/program"
fi
barrier
if [ "$me" = 0 ]; then
    host cable 0 3 up
    step 90 'path comes back' "$osm"'; kill -CONT "$(cat /run/osm/process)"
        until_true "[ \$(iblinkinfo -l | grep -c leaf1.*Active.*leaf2) = 2 ] && [ \"\$(ways)\" = \"\$(cat /run/osm/ways)\" ]"'
fi
barrier
if [ "$me" = 1 ]; then
    step 90 'data goes on' "touch /run/mended; until_true 'grep -Eq \"^(left|Error)\" /run/program'; cat /run/program
        grep -q ^left /run/program"
fi
barrier
if [ "$me" = 0 ]; then
    step 60 'what Linux saw' "until_true 'grep -q complete /run/server'; cat /run/server
        dmesg | grep -i 'RDMA CMA' || true; $counters"
    step 60 'manager ends' "$osm"'; end_manager TERM'
    step 60 'unload' 'rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
fi
