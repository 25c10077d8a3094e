# rdma-core's test suite on the stock driver. Both ends of its connections are the one function.
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_ucm && netdev mlx5_core'
step 60 'up' 'card=$(netdev mlx5_core) && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier" &&
    ip address add 192.168.1.1/24 dev $card && until_true "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state" &&
    until_true "grep -q 0000:0000:0000:0000:0000:ffff:c0a8:0101 /sys/class/infiniband/mlx5_0/ports/1/gids/*"'
step 60 'unpack' 'tar -C / -xf /ours/tests.tar && ls /tests'

# suite PASSED NAMES: the tests have to pass, but for those that skip themselves as there is no render node to take memory from
# (dma-buf), and no signatures, on-demand paging or atomics in device memory on the card.
suite() {
    step 120 "$2" "cd /tests && export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 && python3.13 run_tests.py -v $2 2>&1 | tee /run/tests
        grep '^OK' /run/tests || exit
        passed=\$((\$(sed -n 's/^Ran \([0-9]*\) tests* in .*/\1/p' /run/tests) - \$(sed -n 's/^OK (skipped=\([0-9]*\))/\1/p' /run/tests | grep . || echo 0)))
        echo \"note: passed \$passed\"; [ \$passed = $1 ]"
}
# Windows of both types, bound by call and by request, invalidated by either side; regions registered again.
suite 7 test_mr.MWTest
suite 6 test_mr.MRTest
# Indirect keys: lists and strided patterns, by both interfaces; refusals; remote invalidation.
suite 6 test_mlx5_mkey
# Device memory: copied in and out, sent, read, written and counted up by the peer.
suite 6 test_mr.DeviceMemoryTest
suite 3 test_mr.DeviceMemoryAPITest
suite 8 test_device.DMTest
# Rules in front of raw packet QPs.
suite 5 test_flow
suite 3 test_mlx5_flow
# Tables of frames that are sent: they drop, count, and change source addresses.
dr=test_mlx5_dr.Mlx5DrTest.test_root
suite 4 "${dr}_tbl_drop_action ${dr}_tbl_modify_header_rule ${dr}_reuse_action_and_matcher ${dr}_tbl_counter_action"
# Dynamic connections with streams, compressed CQEs and those of 128 bytes, scattering to CQEs, relaxed ordering, time stamps.
suite 6 test_mlx5_dc
suite 9 test_mlx5_cq
suite 3 test_relaxed_ordering
suite 6 test_mlx5_timestamp
suite 1 test_mlx5_raw_wqe
suite 26 test_qp
step 60 'unload' 'rmmod rdma_ucm && rmmod mlx5_ib && rmmod mlx5_core'
