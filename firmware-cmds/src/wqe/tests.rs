extern crate std;
use super::*;
use crate::numbers::{LKey, Qpn, RKey};
use crate::word::Word;
use std::vec::Vec;

fn hex(dwords: &[u32]) -> Vec<u8> {
    dwords.iter().flat_map(|d| d.to_be_bytes()).collect()
}

fn segment(first: impl Word<Raw = u64>, second: impl Word<Raw = u64>) -> [u8; 16] {
    let halves = [first.to_memory(), second.to_memory()].map(u64::to_ne_bytes);
    zerocopy::transmute!(halves)
}

// The first three are the known answers of rdma-core's own segment helpers.

#[test]
fn known_answer_rdma_write() {
    let control = ControlWord::of_queue(Qpn::new(0xabcde).unwrap());
    let control = control.with(Opcode::RdmaWrite, 0x1234, 3);
    let wqe = [
        segment(control, ControlFlags::new(completion::ALWAYS, 0)),
        segment(
            RemoteAddressWord(0x1122_3344_5566_7788),
            RemoteKeyWord::new(RKey(0xaabb_cc01)),
        ),
        data_segment(0x1000, LKey(0x0011_2201), 0x7f00_0000_1000),
    ]
    .concat();
    let expected = [
        0x0012_3408,
        0x0abc_de03,
        0x0000_0008,
        0x0000_0000,
        0x1122_3344,
        0x5566_7788,
        0xaabb_cc01,
        0x0000_0000,
        0x0000_1000,
        0x0011_2201,
        0x0000_7f00,
        0x0000_1000,
    ];
    assert_eq!(wqe, hex(&expected));
    assert_eq!(control.0, 0x0012_3408_0abc_de03);
}

#[test]
fn known_answer_send_immediate() {
    let mut flags = ControlFlags::new(fence::SMALL_AND_FENCE | completion::ALWAYS, 0xdead_beef);
    flags.set_solicited(true);
    let control = ControlWord::of_queue(Qpn::new(0x11).unwrap());
    let control = control.with(Opcode::SendImmediate, 7, 2);
    let expected = [0x0000_070b, 0x0000_1102, 0x0000_008a, 0xdead_beef];
    assert_eq!(segment(control, flags)[..], hex(&expected));
}

#[test]
fn known_answer_address_vector() {
    let mut path = DestinationWord(0);
    path.set_udp_sport(0xc123);
    let mut mac = RemoteMacWord(0);
    mac.set_rmac_47_16(0x0200_0000);
    let mut grh = GrhWord(0);
    grh.set_rmac_15_0(9);
    grh.set_tclass(0x10);
    grh.set_hop_limit(64);
    grh.set_grh(true);
    grh.set_sgid_index(3);
    grh.set_flow_label(0x12345);
    let mut av = [0; 48];
    QKeyWord::new(0x1111_1111).write(&mut av);
    path.to(Qpn::new(0x42).unwrap()).write(&mut av);
    mac.write(&mut av);
    grh.write(&mut av);
    RemoteGidLowWord(0x0000_ffff_c0a8_0102).write(&mut av);
    let expected = [
        0x1111_1111,
        0,
        0x8000_0042,
        0x0000_c123,
        0x0000_0000,
        0x0200_0000,
        0x0009_1040,
        0x4031_2345,
        0,
        0,
        0x0000_ffff,
        0xc0a8_0102,
    ];
    assert_eq!(av[..], hex(&expected));
}

/// As `mlx5_create_ah` of rdma-core composes the two bytes: rate and service level, force loopback and path bits.
#[test]
fn rate_service_level_and_path_bits() {
    let mut path = DestinationWord(0);
    path.set_stat_rate(3);
    path.set_sl(5);
    path.set_mlid(0x7f);
    path.set_rlid(0x77);
    assert_eq!(path.0, 0x357f_0077);
    path.set_fl(true);
    assert_eq!(path.0, 0x35ff_0077);
    path.set_eth_prio(0);
    assert_eq!(path.sl(), 1);
}

#[test]
fn xrc_and_atomic_segments() {
    let srqn = crate::numbers::Srqn::new(0x00ab_cdef).unwrap();
    let expected = [0x00ab_cdef, 0, 0, 0];
    assert_eq!(
        segment(XrcWord::new(srqn), XrcReservedWord(0))[..],
        hex(&expected)
    );
    let swap = segment(
        AtomicSwapAddWord(0x3333_3333_4444_4444),
        AtomicCompareWord(0x1111_1111_2222_2222),
    );
    let expected = [0x3333_3333, 0x4444_4444, 0x1111_1111, 0x2222_2222];
    assert_eq!(swap[..], hex(&expected));
}

#[test]
fn inline_words_keep_their_length() {
    for length in 0..=0x3ff {
        let word = InlineWord::new(length);
        assert!(word.inline());
        assert_eq!(u32::from(word.length()), length);
        assert_eq!(word.0, 1 << 31 | length);
    }
}

#[test]
fn receive_segments() {
    let mut next = SrqNextWord(0);
    next.set_next_wqe_index(0x1234);
    assert_eq!(next.0, 0x1234);
    let terminator = data_segment(0, LKey::TERMINATOR, 0);
    assert_eq!(terminator[..], hex(&[0, 0x100, 0, 0]));
    assert_eq!(DataWord::new(0, LKey(1)).length(), 0x8000_0000);
    assert_eq!(DataWord::new(7, LKey(1)).length(), 7);
}

#[test]
fn opcodes_round_trip() {
    for number in 0..=255u8 {
        if let Some(opcode) = Opcode::from_number(number) {
            assert_eq!(opcode as u8, number);
        }
    }
    assert_eq!(Opcode::ALL.len(), 23);
}
