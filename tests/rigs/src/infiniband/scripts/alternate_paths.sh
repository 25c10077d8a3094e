# The program in C has the C library execute commands, which it does by /bin/sh.
# One machine with both adapters, each of which has two identifiers. While a cable is cut, the manager sleeps: it would find
# the identifiers another way.
step 60 'functions for paths' 'ln -s /applets/sh /bin/sh && cat >> /run/osm/functions <<"LIST"
# The four of them: two of each adapter.
ways() {
    for low in 0 1; do
        echo "$(by 1 $(($(number mlx5_1 lid) + low))) $(by 2 $(($(number mlx5_0 lid) + low)))"
    done
}
# bits CABLE: the low bits of the identifiers of both adapters that lead over a cable; without the manager no switch is found.
bits() {
    for column in 2 1; do
        awk -v cable="$1" "\$$column == cable { print NR - 1 }" /run/osm/ways
    done
}
# mend CABLE: plugs it in, and wakes the manager until everything is as it was.
mend() {
    kill -CONT "$(cat /run/osm/process)"
    echo "@@ host cable 0 $1 up" > /dev/console
    until [ "$(ways)" = "$(cat /run/osm/ways)" ] && [ "$(iblinkinfo -l | grep -c "leaf1.*Active.*leaf2")" = 2 ]; do
        usleep 100000
    done
    kill -STOP "$(cat /run/osm/process)"
}
LIST
'
step 60 'manager' "$osm; manager -l 1"
step 120 'ports come up' "$osm"'; until_true "active mlx5_0 && active mlx5_1"
    until_true "[ \$(number mlx5_0 lid_mask_count) = 1 ] && [ \$(number mlx5_1 lid_mask_count) = 1 ]"; ibstat'
step 60 'each identifier has its cable' "$osm"'; until_true spread; ways | tee /run/osm/ways
    kill -STOP "$(cat /run/osm/process)"'
step 240 'either cable cut under a flow' "$osm"'
    cut() { echo "echo @@ host cable 0 $1 down > /dev/console"; }
    mended() { echo ". /run/osm/functions; mend $1"; }
    /ours/alternate_paths mlx5_0 mlx5_1 $(bits 3) $(bits 4) "$(cut 3)" "$(mended 3)" "$(cut 4)" "$(mended 4)" \
        "$(cut 3)" "$(mended 3)"'
step 60 'manager ends' "$osm"'; kill -CONT "$(cat /run/osm/process)"; end_manager TERM'
step 60 'unload' 'rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
