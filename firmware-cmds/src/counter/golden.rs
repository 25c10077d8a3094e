//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn alloc_q_counter_in() {
    emits::<AllocQCounterIn>(
        |s| {
            s.set_opcode(0x771).set_uid(0xb3e9).set_op_mod(0x9120);
        },
        &[(0x000, "0771b3e9 a5a59120")],
    );
    fresh(&AllocQCounterIn::new().0, 0x771);
}

#[test]
fn alloc_q_counter_out_parsed() {
    parses::<AllocQCounterOut>(&[(0x000, "08a5a5a5 86c11a2c a5a5a5f8")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x86c11a2c);
        assert_eq!(s.counter_set_id(), 0xf8);
    });
}

#[test]
fn dealloc_q_counter_in() {
    emits::<DeallocQCounterIn>(
        |s| {
            s.set_opcode(0x772)
                .set_op_mod(0x3ba2)
                .set_counter_set_id(0xbf);
        },
        &[(0x000, "0772a5a5 a5a53ba2 a5a5a5bf")],
    );
    fresh(&DeallocQCounterIn::new().0, 0x772);
}

#[test]
fn query_q_counter_in() {
    emits::<QueryQCounterIn>(
        |s| {
            s.set_opcode(0x773)
                .set_op_mod(0x3da9)
                .set_clear(false)
                .set_counter_set_id(0x9a);
        },
        &[(0x000, "0773a5a5 a5a53da9"), (0x018, "25a5a5a5 a5a5a59a")],
    );
    fresh(&QueryQCounterIn::new().0, 0x773);
}

#[test]
fn query_q_counter_out_parsed() {
    parses::<QueryQCounterOut>(
        &[
            (0x000, "08a5a5a5 0c11b2e7"),
            (0x010, "786dcf2a"),
            (0x018, "23865a33"),
            (0x020, "8414c327"),
            (0x028, "e174d688"),
            (0x030, "921382f8"),
            (0x038, "990d0014"),
            (0x040, "551729d5"),
            (0x048, "3ab6d337"),
            (0x050, "e2478dbe"),
            (0x058, "14705b81"),
            (0x060, "e62036ce"),
            (
                0x078,
                "ec36beb7 ea625e95 cab41d24 bc84fd22 76b604d1 c57651fa",
            ),
            (
                0x090,
                "c6b35c41 ecccba1c 4c434186 495e94e4 831b7e03 f8cd3cb1",
            ),
            (
                0x0a8,
                "3302e251 030252d5 30dd485b e1dfc2ef 8d8ae0a3 33100a22",
            ),
            (0x0c0, "5ceef3b8"),
            (0x0c8, "a2bb8dd4 e58927c5 c423285c c1a599ae 0c441c20"),
        ],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0xc11b2e7);
            assert_eq!(s.rx_write_requests(), 0x786dcf2a);
            assert_eq!(s.rx_read_requests(), 0x23865a33);
            assert_eq!(s.rx_atomic_requests(), 0x8414c327);
            assert_eq!(s.rx_dct_connect(), 0xe174d688);
            assert_eq!(s.out_of_buffer(), 0x921382f8);
            assert_eq!(s.out_of_sequence(), 0x990d0014);
            assert_eq!(s.duplicate_request(), 0x551729d5);
            assert_eq!(s.rnr_nak_retry_err(), 0x3ab6d337);
            assert_eq!(s.packet_seq_err(), 0xe2478dbe);
            assert_eq!(s.implied_nak_seq_err(), 0x14705b81);
            assert_eq!(s.local_ack_timeout_err(), 0xe62036ce);
            assert_eq!(s.resp_local_length_error(), 0xec36beb7);
            assert_eq!(s.req_local_length_error(), 0xea625e95);
            assert_eq!(s.resp_local_qp_error(), 0xcab41d24);
            assert_eq!(s.local_operation_error(), 0xbc84fd22);
            assert_eq!(s.resp_local_protection(), 0x76b604d1);
            assert_eq!(s.req_local_protection(), 0xc57651fa);
            assert_eq!(s.resp_cqe_error(), 0xc6b35c41);
            assert_eq!(s.req_cqe_error(), 0xecccba1c);
            assert_eq!(s.req_mw_binding(), 0x4c434186);
            assert_eq!(s.req_bad_response(), 0x495e94e4);
            assert_eq!(s.req_remote_invalid_request(), 0x831b7e03);
            assert_eq!(s.resp_remote_invalid_request(), 0xf8cd3cb1);
            assert_eq!(s.req_remote_access_errors(), 0x3302e251);
            assert_eq!(s.resp_remote_access_errors(), 0x30252d5);
            assert_eq!(s.req_remote_operation_errors(), 0x30dd485b);
            assert_eq!(s.req_transport_retries_exceeded(), 0xe1dfc2ef);
            assert_eq!(s.cq_overflow(), 0x8d8ae0a3);
            assert_eq!(s.resp_cqe_flush_error(), 0x33100a22);
            assert_eq!(s.req_cqe_flush_error(), 0x5ceef3b8);
            assert_eq!(s.roce_adp_retrans(), 0xa2bb8dd4);
            assert_eq!(s.roce_adp_retrans_to(), 0xe58927c5);
            assert_eq!(s.roce_slow_restart(), 0xc423285c);
            assert_eq!(s.roce_slow_restart_cnps(), 0xc1a599ae);
            assert_eq!(s.roce_slow_restart_trans(), 0xc441c20);
        },
    );
}
