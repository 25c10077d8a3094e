for kind in loss duplicate reorder delay corrupt; do
    faults="--fault $kind=0.02,max-delay=20ms --fault-seed 7"
    serving=1
    client_server 180 "rdma-core's client, our server, $kind" "$ready" "$serve -a 10.0.0.2 $faults" 'rping -c -a 10.0.0.2 -C 20 -S 4096 -V'
    # Servers read. When Linux does, and an old acknowledgement comes late, between two packets of what it reads, it takes
    # that for an error, warns (rxe_comp.c: check_psn lets it through, check_ack has no case for it), and waits for ever.
    case $kind in reorder | delay) continue ;; esac
    serving=0
    client_server 180 "our client, rdma-core's server, $kind" listening_cm \
        'rping -s -a 10.0.0.1 -C 20 -S 4096 -V' "$connect -a 10.0.0.1 -I 10.0.0.3 -C 20 -S 4096 -V $faults"
done
