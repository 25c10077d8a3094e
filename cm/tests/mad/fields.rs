//! Each field of each message, where the IBTA's tables have it.

use bareverbs_cm::mad::*;

/// Every field at its own place: setting one to all ones changes exactly the bits that the table gives it.
#[test]
fn fields_lie_where_the_tables_say() {
    let at = |message: Message<'_>, byte: usize, bit: usize, width: usize| {
        let mut buffer = [0xa5; MAD_LEN];
        message
            .emit(&Header::send(message.attribute(), 0), &mut buffer)
            .unwrap();
        for position in 0..DATA_LEN * 8 {
            let set = buffer[DATA + position / 8] & (0x80 >> (position % 8)) != 0;
            let wanted = (byte * 8 + bit..byte * 8 + bit + width).contains(&position);
            assert_eq!(set, wanted, "bit {position} of {message:?}");
        }
        let view = Mad::new(&buffer).unwrap();
        let mut again = [0x5a; MAD_LEN];
        view.message()
            .unwrap()
            .emit(&view.header(), &mut again)
            .unwrap();
        assert_eq!(again, buffer);
    };
    let req = |edit: fn(&mut Req<'_>), byte, bit, width| {
        let mut req = Req::ZERO;
        edit(&mut req);
        at(Message::Req(req), byte, bit, width);
    };
    req(|r| r.vendor_id = 0xff_ffff, 5, 0, 24);
    req(|r| r.local_qkey = u32::MAX, 28, 0, 32);
    req(|r| r.remote_cm_response_timeout = 31, 43, 0, 5);
    req(|r| r.transport = 3, 43, 5, 2);
    req(|r| r.flow_control = 1, 43, 7, 1);
    req(|r| r.local_cm_response_timeout = 31, 47, 0, 5);
    req(|r| r.rdc_exists = 1, 50, 4, 1);
    req(|r| r.srq = 1, 51, 4, 1);
    req(|r| r.extended_transport = 7, 51, 5, 3);
    req(|r| r.primary_flow_label = 0xf_ffff, 88, 0, 20);
    req(|r| r.primary_rate = 0x3f, 91, 2, 6);
    req(|r| r.primary_sl = 15, 94, 0, 4);
    req(|r| r.primary_subnet_local = 1, 94, 4, 1);
    req(|r| r.alternate_local_lid = 0xffff, 96, 0, 16);
    req(|r| r.alternate_local_gid = [0xff; 16], 100, 0, 128);
    req(|r| r.alternate_remote_gid = [0xff; 16], 116, 0, 128);
    req(|r| r.alternate_flow_label = 0xf_ffff, 132, 0, 20);
    req(|r| r.alternate_rate = 0x3f, 135, 2, 6);
    req(|r| r.alternate_hop_limit = 0xff, 137, 0, 8);
    req(|r| r.alternate_ack_timeout = 31, 139, 0, 5);
    req(|r| r.sap_supported = 1, 139, 5, 1);
    req(|r| r.private_data = &[0xff; 92], 140, 0, 92 * 8);
    at(
        Message::Rep(Rep {
            vendor_id_high: 0xff,
            ..Rep::ZERO
        }),
        15,
        0,
        8,
    );
    at(
        Message::Rep(Rep {
            vendor_id_middle: 0xff,
            ..Rep::ZERO
        }),
        19,
        0,
        8,
    );
    at(
        Message::Rep(Rep {
            vendor_id_low: 0xff,
            ..Rep::ZERO
        }),
        23,
        0,
        8,
    );
    at(
        Message::Rep(Rep {
            target_ack_delay: 31,
            ..Rep::ZERO
        }),
        26,
        0,
        5,
    );
    at(
        Message::Rep(Rep {
            failover_accepted: 3,
            ..Rep::ZERO
        }),
        26,
        5,
        2,
    );
    at(
        Message::Rep(Rep {
            flow_control: 1,
            ..Rep::ZERO
        }),
        26,
        7,
        1,
    );
    at(
        Message::Rep(Rep {
            srq: 1,
            ..Rep::ZERO
        }),
        27,
        3,
        1,
    );
    at(
        Message::Rep(Rep {
            private_data: &[0xff; 196],
            ..Rep::ZERO
        }),
        36,
        0,
        196 * 8,
    );
    at(
        Message::Mra(Mra {
            message: 3,
            ..Mra::ZERO
        }),
        8,
        0,
        2,
    );
    at(
        Message::Mra(Mra {
            private_data: &[0xff; 222],
            ..Mra::ZERO
        }),
        10,
        0,
        222 * 8,
    );
    at(
        Message::Rej(Rej {
            message: 3,
            ..Rej::ZERO
        }),
        8,
        0,
        2,
    );
    at(
        Message::Rej(Rej {
            info: [0xff; 72],
            ..Rej::ZERO
        }),
        12,
        0,
        72 * 8,
    );
    at(
        Message::Rej(Rej {
            private_data: &[0xff; 148],
            ..Rej::ZERO
        }),
        84,
        0,
        148 * 8,
    );
    at(
        Message::Rtu(Rtu {
            private_data: &[0xff; 224],
            ..Rtu::ZERO
        }),
        8,
        0,
        224 * 8,
    );
    at(
        Message::Dreq(Dreq {
            private_data: &[0xff; 220],
            ..Dreq::ZERO
        }),
        12,
        0,
        220 * 8,
    );
    at(
        Message::Drep(Drep {
            private_data: &[0xff; 224],
            ..Drep::ZERO
        }),
        8,
        0,
        224 * 8,
    );
    at(
        Message::Lap(Lap {
            remote_qpn: 0xff_ffff,
            ..Lap::ZERO
        }),
        12,
        0,
        24,
    );
    at(
        Message::Lap(Lap {
            remote_cm_response_timeout: 31,
            ..Lap::ZERO
        }),
        15,
        0,
        5,
    );
    at(
        Message::Lap(Lap {
            alternate_local_gid: [0xff; 16],
            ..Lap::ZERO
        }),
        24,
        0,
        128,
    );
    at(
        Message::Lap(Lap {
            alternate_flow_label: 0xf_ffff,
            ..Lap::ZERO
        }),
        56,
        0,
        20,
    );
    at(
        Message::Lap(Lap {
            alternate_traffic_class: 0xff,
            ..Lap::ZERO
        }),
        59,
        0,
        8,
    );
    at(
        Message::Lap(Lap {
            alternate_rate: 0x3f,
            ..Lap::ZERO
        }),
        61,
        2,
        6,
    );
    at(
        Message::Lap(Lap {
            alternate_subnet_local: 1,
            ..Lap::ZERO
        }),
        62,
        4,
        1,
    );
    at(
        Message::Lap(Lap {
            alternate_ack_timeout: 31,
            ..Lap::ZERO
        }),
        63,
        0,
        5,
    );
    at(
        Message::Lap(Lap {
            private_data: &[0xff; 168],
            ..Lap::ZERO
        }),
        64,
        0,
        168 * 8,
    );
    at(
        Message::Apr(Apr {
            status: 0xff,
            ..Apr::ZERO
        }),
        9,
        0,
        8,
    );
    at(
        Message::Apr(Apr {
            private_data: &[0xff; 148],
            ..Apr::ZERO
        }),
        84,
        0,
        148 * 8,
    );
    at(
        Message::SidrReq(SidrReq {
            pkey: 0xffff,
            ..SidrReq::ZERO
        }),
        4,
        0,
        16,
    );
    at(
        Message::SidrReq(SidrReq {
            private_data: &[0xff; 216],
            ..SidrReq::ZERO
        }),
        16,
        0,
        216 * 8,
    );
    at(
        Message::SidrRep(SidrRep {
            vendor_id_high: 0xffff,
            ..SidrRep::ZERO
        }),
        6,
        0,
        16,
    );
    at(
        Message::SidrRep(SidrRep {
            vendor_id_low: 0xff,
            ..SidrRep::ZERO
        }),
        11,
        0,
        8,
    );
    at(
        Message::SidrRep(SidrRep {
            private_data: &[0xff; 136],
            ..SidrRep::ZERO
        }),
        96,
        0,
        136 * 8,
    );
    let ports = ClassPortInfo {
        capability_mask2: 0x7ff_ffff,
        ..ClassPortInfo::ZERO
    };
    let mut buffer = [0xa5; MAD_LEN];
    Message::ClassPortInfo(ports)
        .emit(&Header::get_resp(Attribute::ClassPortInfo, 0), &mut buffer)
        .unwrap();
    assert_eq!(buffer[DATA + 4..DATA + 8], [0xff, 0xff, 0xff, 0xe0]);
}
