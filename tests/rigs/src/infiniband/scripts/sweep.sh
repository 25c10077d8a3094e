# One machine has the first adapter, and the manager of all. The time of a sweep is from the manager's start until it says that the
# subnet is up.
step 600 'first sweep' "$osm"'
    # Hundredths of a second.
    now() { cut -d " " -f 1 /proc/uptime | tr -d .; }
    started=$(now)
    manager -t 1000
    until_true "grep -q \"SUBNET UP\" /run/osm/log /run/osm/out"
    ended=$(now)
    echo "note: OpenSM: first sweep of $switches switches and $adapters adapters in $((ended - started))0 ms"
    tail -n 5 /run/osm/log'
step 300 'all are there' "
    ibnetdiscover > /run/discovered
    [ \"\$(grep -c ^Ca /run/discovered)\" = $adapters ] && [ \"\$(grep -c ^Switch /run/discovered)\" = $switches ]"
step 120 'all are active' "$osm"'; until_true "active mlx5_0"; saquery PIR > /run/ports; echo $(grep -c "PortInfoRecord" /run/ports)'
step 120 'errors' '! grep " ERR " /run/osm/log'
step 60 'manager ends' "$osm"'; end_manager TERM'
step 60 'unload' 'rmmod rdma_ucm && rmmod ib_ipoib && rmmod ib_umad && rmmod mlx5_ib && rmmod mlx5_core'
