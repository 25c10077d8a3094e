//! The codec against frames that the Linux CM sent.

use bareverbs_cm::mad::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Builds a MAD from its transaction ID, attribute and the start of its data.
fn mad(tid: u64, attribute: u16, data: &str) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[8..16].copy_from_slice(&tid.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    let data = hex(data);
    mad[DATA..DATA + data.len()].copy_from_slice(&data);
    mad
}

/// Every MAD in a capture of two Linux 6.1 guests (rping, ucmatose, udaddy, mckey, a reject) in order.
fn captured() -> Vec<[u8; MAD_LEN]> {
    let pcap = std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/model/tests/data/rxe61-guest-guest.pcap"
    ))
    .unwrap();
    assert_eq!(pcap[..4], 0xa1b2_c3d4u32.to_le_bytes());
    let mut mads = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let len = u32::from_le_bytes(pcap[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &pcap[at + 16..at + 16 + len];
        at += 16 + len;
        let udp = match frame[12..14] {
            [0x08, 0x00] if frame[23] == 17 => 14 + 20,
            [0x86, 0xdd] if frame[20] == 17 => 14 + 40,
            _ => continue,
        };
        if frame[udp + 2..udp + 4] != 4791u16.to_be_bytes() {
            continue;
        }
        let bth = udp + 8;
        // UD SEND_ONLY to QP 1.
        if frame[bth] == 0x64 && frame[bth + 5..bth + 8] == [0, 0, 1] {
            mads.push(frame[bth + 20..bth + 20 + MAD_LEN].try_into().unwrap());
        }
    }
    mads
}

#[test]
fn every_captured_mad_survives_decoding_and_encoding() {
    let mads = captured();
    let mut kinds = std::collections::BTreeMap::new();
    for original in &mads {
        let mad = Mad::new(original).unwrap();
        let message = mad.message().unwrap();
        *kinds.entry(message.attribute().name()).or_insert(0) += 1;
        let mut again = [0xa5; MAD_LEN];
        message.emit(&mad.header(), &mut again).unwrap();
        assert_eq!(&again, original, "{message:?}");
    }
    // As tshark counts them; none was passed over.
    let expected = [
        ("DREP", 4),
        ("DREQ", 4),
        ("REJ", 1),
        ("REP", 4),
        ("REQ", 5),
        ("RTU", 4),
        ("SIDR_REP", 1),
        ("SIDR_REQ", 1),
    ];
    assert_eq!(kinds, expected.into());
}

/// The RDMA CM's header in each request, and what a refusal says.
#[test]
fn what_captured_mads_carry_survives_as_well() {
    let mut headers = 0;
    for original in &captured() {
        let mad = Mad::new(original).unwrap();
        let private_data = match mad.message().unwrap() {
            Message::Req(req) => req.private_data,
            Message::SidrReq(req) => req.private_data,
            Message::Rej(rej) => {
                let mut info = [0; 72];
                let len = rej.reject_info().emit(&mut info);
                assert_eq!(info[..len], *rej.additional_info());
                continue;
            }
            _ => continue,
        };
        let (header, _) = CmaHeader::parse(private_data).unwrap();
        let mut again = [0xa5; CmaHeader::LEN];
        header.emit(&mut again).unwrap();
        assert_eq!(again, private_data[..CmaHeader::LEN]);
        headers += 1;
    }
    assert_eq!(headers, 6);
}

#[test]
fn golden_req_has_the_known_fields() {
    let bytes = mad(
        0x0000_0002_8f48_c2f5,
        0x0010,
        "f5c2488f 00000000 0000000001061c06 505400fffe000002 00000000 00000000
         000011 01 000000 01 000000 a0  541c46 a7  ffff 37 f0
         ffff ffff 00000000000000000000ffff0a000002 00000000000000000000ffff0a000001 69818000 00 40 00 98
         0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
         00 40 b9ae 0000000000000000000000000a000002 0000000000000000000000000a000001",
    );
    let view = Mad::new(&bytes).unwrap();
    let req = Req::parse(&view).unwrap();
    let gid = |last: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
    assert_eq!(
        req,
        Req {
            local_comm_id: 0xf5c2_488f,
            service_id: 0x0106_1c06,
            local_ca_guid: 0x5054_00ff_fe00_0002,
            local_qpn: 0x11,
            responder_resources: 1,
            initiator_depth: 1,
            remote_cm_response_timeout: 20,
            local_cm_response_timeout: 20,
            starting_psn: 0x541c46,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 3,
            rnr_retry_count: 7,
            max_cm_retries: 15,
            primary_local_lid: 0xffff,
            primary_remote_lid: 0xffff,
            primary_local_gid: gid(2),
            primary_remote_gid: gid(1),
            primary_flow_label: 0x69818,
            primary_hop_limit: 64,
            primary_ack_timeout: 19,
            private_data: &bytes[DATA + 140..],
            ..Req::ZERO
        }
    );
    let (header, user) = CmaHeader::parse(req.private_data).unwrap();
    assert_eq!(
        header.source,
        "10.0.0.2".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(
        header.destination,
        "10.0.0.1".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(header.source_port, 47534);
    assert_eq!(user, [0; CmaHeader::REQ_PRIVATE_DATA_MAX]);
    let mut again = [0xa5; CmaHeader::LEN];
    header.emit(&mut again).unwrap();
    assert_eq!(again, req.private_data[..CmaHeader::LEN]);
}

#[test]
fn golden_short_messages() {
    let check = |attribute: u16, data: &str, expected: Message<'_>| {
        let bytes = mad(0x28f48c2f5, attribute, data);
        let view = Mad::new(&bytes).unwrap();
        let mut buffer = [0xa5; MAD_LEN];
        expected.emit(&view.header(), &mut buffer).unwrap();
        assert_eq!(buffer, bytes, "{expected:?}");
        // Parsing gives the whole private data field; an empty one and zeros are the same on the wire.
        let mut again = [0xa5; MAD_LEN];
        view.message()
            .unwrap()
            .emit(&view.header(), &mut again)
            .unwrap();
        assert_eq!(again, bytes);
    };
    check(
        0x0013,
        "5a24583d f5c2488f 00000000 000011 00 000000 00 6135b4 00 01 01 78 e0 505400fffe000001",
        Message::Rep(Rep {
            local_comm_id: 0x5a24_583d,
            remote_comm_id: 0xf5c2_488f,
            local_qpn: 0x11,
            starting_psn: 0x6135b4,
            responder_resources: 1,
            initiator_depth: 1,
            target_ack_delay: 15,
            rnr_retry_count: 7,
            local_ca_guid: 0x5054_00ff_fe00_0001,
            ..Rep::ZERO
        }),
    );
    check(
        0x0014,
        "f5c2488f 5a24583d",
        Message::Rtu(Rtu {
            local_comm_id: 0xf5c2_488f,
            remote_comm_id: 0x5a24_583d,
            ..Rtu::ZERO
        }),
    );
    check(
        0x0015,
        "f5c2488f 5a24583d 000011",
        Message::Dreq(Dreq {
            local_comm_id: 0xf5c2_488f,
            remote_comm_id: 0x5a24_583d,
            remote_qpn: 0x11,
            ..Dreq::ZERO
        }),
    );
    check(
        0x0016,
        "5a24583d f5c2488f",
        Message::Drep(Drep {
            local_comm_id: 0x5a24_583d,
            remote_comm_id: 0xf5c2_488f,
            ..Drep::ZERO
        }),
    );
    check(
        0x0012,
        "00000000 f0c2488f 00 00 0008",
        Message::Rej(Rej {
            remote_comm_id: 0xf0c2_488f,
            reason: 8,
            ..Rej::ZERO
        }),
    );
    check(
        0x0011,
        "ee314184 aaaa000c 00 c0",
        Message::Mra(Mra {
            local_comm_id: 0xee31_4184,
            remote_comm_id: 0xaaaa_000c,
            service_timeout: 24,
            ..Mra::ZERO
        }),
    );
    check(
        0x0018,
        "f6c2488f 00 00 0000 000014 00 0000000001111c06 01234567",
        Message::SidrRep(SidrRep {
            request_id: 0xf6c2_488f,
            qpn: 0x14,
            service_id: 0x0111_1c06,
            qkey: 0x0123_4567,
            ..SidrRep::ZERO
        }),
    );
}

#[test]
fn values_that_do_not_fit_are_errors() {
    let mut buffer = [0xa5; MAD_LEN];
    let long = [1; 256];
    assert_eq!(
        Req {
            private_data: &long[..93],
            ..Req::ZERO
        }
        .emit(0, &mut buffer),
        Err(MadError::PrivateDataTooLong { len: 93, max: 92 })
    );
    assert_eq!(
        Rep {
            private_data: &long[..197],
            ..Rep::ZERO
        }
        .emit(0, &mut buffer),
        Err(MadError::PrivateDataTooLong { len: 197, max: 196 })
    );
    assert_eq!(
        Req {
            local_qpn: 0x100_0000,
            ..Req::ZERO
        }
        .emit(0, &mut buffer),
        Err(MadError::FieldTooWide {
            field: "local_qpn",
            bits: 24
        })
    );
    assert_eq!(
        [
            Req::PRIVATE_DATA_MAX,
            Mra::PRIVATE_DATA_MAX,
            Rej::PRIVATE_DATA_MAX,
            Rep::PRIVATE_DATA_MAX,
            Rtu::PRIVATE_DATA_MAX,
            Dreq::PRIVATE_DATA_MAX,
            Drep::PRIVATE_DATA_MAX,
            Lap::PRIVATE_DATA_MAX,
            Apr::PRIVATE_DATA_MAX,
            SidrReq::PRIVATE_DATA_MAX,
            SidrRep::PRIVATE_DATA_MAX,
            CmaHeader::REQ_PRIVATE_DATA_MAX,
            CmaHeader::SIDR_REQ_PRIVATE_DATA_MAX,
        ],
        [
            92, 222, 148, 196, 224, 220, 224, 168, 148, 216, 136, 56, 180
        ]
    );
}

#[test]
fn bad_headers_are_named() {
    let good = mad(1, 0x0014, "f5c2488f 5a24583d");
    let broken = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Mad::new(&bytes).unwrap_err()
    };
    assert!(Mad::new(&good).is_ok());
    assert_eq!(
        Mad::new(&good[..255]).unwrap_err(),
        MadError::Truncated {
            len: 255,
            need: 256
        }
    );
    assert_eq!(broken(0, 2), MadError::BaseVersion(2));
    assert_eq!(broken(1, 3), MadError::Class(3));
    assert_eq!(broken(2, 1), MadError::ClassVersion(1));
    assert_eq!(
        broken(3, 1),
        MadError::Method {
            method: 1,
            attribute: 0x14
        }
    );
    assert_eq!(broken(17, 0x30), MadError::UnknownAttribute(0x30));
    let rej = mad(1, 0x0012, "00000000 f0c2488f 00 ff 0008");
    assert_eq!(
        Mad::new(&rej).unwrap().message(),
        Err(MadError::InfoTooLong { len: 127, max: 72 })
    );
    assert_eq!(
        Req::parse(&Mad::new(&good).unwrap()),
        Err(MadError::WrongMessage {
            found: 0x14,
            wanted: 0x10
        })
    );
}

#[test]
fn cma_header_of_both_families_and_bad_versions() {
    let v6 = CmaHeader {
        source_port: 1,
        source: "fe80::1".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
    };
    let mut bytes = [0xa5; CmaHeader::LEN];
    v6.emit(&mut bytes).unwrap();
    assert_eq!(bytes[..4], [0, 0x60, 0, 1]);
    assert_eq!(CmaHeader::parse(&bytes).unwrap(), (v6, &[][..]));
    assert_eq!(
        CmaHeader::parse(&bytes[..35]),
        Err(MadError::Truncated { len: 35, need: 36 })
    );
    let mixed = CmaHeader {
        destination: "10.0.0.1".parse().unwrap(),
        ..v6
    };
    assert_eq!(
        mixed.emit(&mut [0; CmaHeader::LEN]),
        Err(MadError::MixedFamilies)
    );
    bytes[0] = 0x10;
    assert_eq!(CmaHeader::parse(&bytes), Err(MadError::CmaVersion(0x10)));
    bytes[0] = 0;
    bytes[1] = 0x50;
    assert_eq!(CmaHeader::parse(&bytes), Err(MadError::IpVersion(5)));
}

#[test]
fn reasons_have_text() {
    assert_eq!(
        RejectReason::INVALID_SERVICE_ID.to_string(),
        "8 (invalid service ID: no listener there)"
    );
    assert_eq!(RejectReason(34).to_string(), "34 (reserved)");
    assert_eq!(RejectReason::CONSUMER_DEFINED.0, 28);
    assert_eq!(SidrStatus::UNSUPPORTED_SERVICE.0, 1);
    assert_eq!(
        AprStatus(2).to_string(),
        "2 (alternate paths are not supported)"
    );
}
