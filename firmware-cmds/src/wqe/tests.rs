extern crate std;
use super::*;
use std::vec::Vec;
use zerocopy::IntoBytes;

fn hex(dwords: &[u32]) -> Vec<u8> {
    dwords.iter().flat_map(|d| d.to_be_bytes()).collect()
}

// The next three are the known answers of rdma-core's own segment helpers.

#[test]
fn known_answer_rdma_write() {
    let qpn = Qpn::new(0xabcde).unwrap();
    let control = Control::new(
        Opcode::RdmaWrite as u8,
        0x1234,
        qpn,
        3,
        completion::ALWAYS,
        0,
    );
    let wqe = [
        control.as_bytes(),
        RemoteAddress::new(0x1122_3344_5566_7788, RKey(0xaabb_cc01)).as_bytes(),
        Data::new(0x1000, LKey(0x0011_2201), 0x7f00_0000_1000).as_bytes(),
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
    assert_eq!(control.doorbell(), 0x0012_3408_0abc_de03);
    let parsed = SendDoorbell {
        qpn,
        index: 0x1234,
        opcode: 8,
        units: 3,
    };
    assert_eq!(SendDoorbell::parse(control.doorbell()), parsed);
}

#[test]
fn known_answer_send_immediate() {
    let flags = fence::SMALL_AND_FENCE | SOLICITED | completion::ALWAYS;
    let qpn = Qpn::new(0x11).unwrap();
    let control = Control::new(Opcode::SendImmediate as u8, 7, qpn, 2, flags, 0xdead_beef);
    assert_eq!(
        control.as_bytes(),
        hex(&[0x0000_070b, 0x0000_1102, 0x0000_008a, 0xdead_beef])
    );
    assert_eq!(
        (control.opcode(), control.index(), control.units()),
        (0x0b, 7, 2)
    );
    assert_eq!(control.qpn(), qpn);
}

#[test]
fn known_answer_address_vector() {
    let mut av = AddressVector {
        rlid_udp_sport: 0xc123.into(),
        rmac: [2, 0, 0, 0, 0, 9],
        tclass: 0x10,
        hop_limit: 64,
        rgid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 1, 2],
        ..Default::default()
    };
    av.set_receiver(Qpn::new(0x42).unwrap(), 0x1111_1111)
        .set_grh(GidIndex(3), 0x12345);
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
    assert_eq!(av.as_bytes(), hex(&expected));
    assert_eq!(
        (av.qpn().number(), av.source_gid(), av.flow_label()),
        (0x42, GidIndex(3), 0x12345)
    );
    assert!(av.has_grh());
}

#[test]
fn atomics() {
    let swap = Atomic::compare_swap(0x1111_1111_2222_2222, 0x3333_3333_4444_4444);
    assert_eq!(
        swap.as_bytes(),
        hex(&[0x3333_3333, 0x4444_4444, 0x1111_1111, 0x2222_2222])
    );
    assert_eq!(Atomic::fetch_add(5).as_bytes(), hex(&[0, 5, 0, 0]));
}

#[test]
fn inline_data() {
    assert_eq!(InlineHeader::new(0x123).as_bytes(), hex(&[0x8000_0123]));
    assert_eq!(inline_length(0x8000_0123), Some(0x123));
    assert_eq!(inline_length(0x123), None);
    let units = [0, 12, 13, 28, 29].map(inline_units);
    assert_eq!(units, [1, 1, 2, 2, 3]);
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
    let next = SrqNext {
        next_wqe_index: 0x1234.into(),
        ..Default::default()
    };
    assert_eq!(next.as_bytes(), hex(&[0x0000_1234, 0, 0, 0]));
    assert_eq!(Data::TERMINATOR.as_bytes(), hex(&[0, 0x100, 0, 0]));
    assert!(Data::TERMINATOR.is_terminator());
    assert_eq!(Data::new(0, LKey(1), 0).length(), 0x8000_0000);
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

#[test]
fn ethernet_segment() {
    let segment = Ethernet {
        swp_outer_l4_offset: 0x11,
        swp_outer_l3_offset: 0x07,
        swp_inner_l4_offset: 0x23,
        swp_inner_l3_offset: 0x19,
        cs_flags: ethernet::L3_CHECKSUM | ethernet::L4_CHECKSUM,
        swp_flags: 0x36,
        mss: U16::new(1448),
        flow_table_metadata: U32::new(0x0bad_cafe),
        inline_size: U16::new(ethernet::INSERT_VLAN | ethernet::SERVICE_TAG),
        inline_start: 0x600au16.to_be_bytes(),
    };
    let expected = [0x1107_2319, 0xc036_05a8, 0x0bad_cafe, 0x8001_600a];
    assert_eq!(segment.as_bytes(), hex(&expected));
}
