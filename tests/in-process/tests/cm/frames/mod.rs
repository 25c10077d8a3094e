//! The manager and its card against a peer that is nothing but Ethernet frames: the experiments with Linux's kernel (Debian
//! 6.1.192, rdma_cm over rxe) that are about what lies below the CM's messages. Headers and ICRC are made here, by hand, so
//! that neither driver nor model vouches for itself.

mod bench;

use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::{CmId, EventType, QpInit};
use bareverbs_core::QpState;
use bareverbs_core::qp::QpCap;

use bench::*;

const SEND_ONLY: u8 = 0x04;
const WRITE_ONLY: u8 = 0x0a;
/// Syndromes of negative acknowledgements.
const SEQUENCE_ERROR: u8 = 0x60;
const ACCESS_ERROR: u8 = 0x62;

/// A REQ that is accepted if its frame is right.
fn request(comm_id: u32) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    req(comm_id, &header()).emit(5, &mut mad).unwrap();
    mad
}

/// The frame is dropped: no event, no answer. The same one without the fault is accepted.
fn ignored(fault: impl Fn(&mut Vec<u8>)) {
    let mut bench = Bench::new();
    let good = datagram(&request(1), &Datagram::default());
    let mut bad = good.clone();
    fault(&mut bad);
    assert_ne!(bad, good);
    bench.say(bad);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.event(), None);
    assert_eq!(bench.cm.stats().received, 0);
    bench.say(good);
    assert_eq!(bench.event(), Some(EventType::ConnectRequest));
}

/// A7: a datagram to QP1 with another Q_Key.
#[test]
fn a7_wrong_qkey() {
    let odd = Datagram {
        qkey: 0x1111_1111,
        ..Datagram::default()
    };
    ignored(|frame| *frame = datagram(&request(1), &odd));
}

/// A10: one bit of the ICRC, or one of what it covers.
#[test]
fn a10_wrong_icrc() {
    ignored(|frame| *frame.last_mut().unwrap() ^= 1);
    ignored(|frame| frame[100] ^= 0x10);
}

/// A8: the default partition as a limited member (0x7fff) is accepted, and answered.
#[test]
fn a8_limited_member_of_the_partition() {
    let limited = Datagram {
        pkey: 0x7fff,
        ..Datagram::default()
    };
    let mut bench = Bench::new();
    bench.say(datagram(&request(1), &limited));
    let request = bench.request();
    bench.cm.reject(request, b"").unwrap();
    bench.run();
    let answers = bench.sent();
    assert_eq!(answers.len(), 1);
    let mad = Mad::new(answers[0].mad()).unwrap();
    assert_eq!(mad.attribute(), Attribute::Rej);
}

/// A9: the answer goes to QP1, not to the source QP of the DETH.
#[test]
fn a9_source_qp_is_not_one() {
    let odd = Datagram {
        source_qp: 0x77,
        ..Datagram::default()
    };
    let mut bench = Bench::new();
    bench.say(datagram(&request(1), &odd));
    let request = bench.request();
    bench.cm.reject(request, b"").unwrap();
    bench.run();
    assert_eq!(bench.sent()[0].destination_qp, 1);
}

/// The card's end of a connection.
struct Replied {
    id: CmId,
    comm_id: u32,
    qpn: u32,
    /// The first PSN that it expects.
    psn: u32,
}

/// A connection of the peer's QP 0x77 to a QP with four receives, up to the REP.
fn replied(bench: &mut Bench) -> Replied {
    bench.say(datagram(&request(0xaaaa_000c), &Datagram::default()));
    let id = bench.request();
    let cap = QpCap {
        max_send_wr: 1,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let mut init = QpInit {
        cap,
        ..QpInit::default()
    };
    bench.cm.create_qp(id, None, &mut init).unwrap();
    let buffer = bench.cm.reg_msgs(id, 64).unwrap();
    for context in 0..4 {
        bench
            .cm
            .post_recv(id, context, buffer.slice(..64).unwrap())
            .unwrap();
    }
    bench.keep(buffer);
    bench.cm.accept(id, None).unwrap();
    bench.run();
    let sent = bench.sent();
    let rep = Rep::parse(&Mad::new(sent[0].mad()).unwrap()).unwrap();
    Replied {
        id,
        comm_id: rep.local_comm_id,
        qpn: rep.local_qpn,
        psn: rep.starting_psn,
    }
}

/// T1 on the wire, and A1c to A1g: data before the RTU is acknowledged; a duplicate is acknowledged again, with the last
/// PSN; a gap gets one NAK with the PSN that is missing, and then silence until it is filled; a wrong key gets a NAK and
/// ends the QP, which the CM does not need for its DREQ.
#[test]
fn t1_a1_data_of_a_connection() {
    let mut bench = Bench::new();
    let Replied {
        id,
        comm_id,
        qpn: qp,
        psn: first,
    } = replied(&mut bench);
    let psn = |nth: u32| (first + nth) & 0xff_ffff;
    let send = |nth: u32| rc(SEND_ONLY, qp, psn(nth), b"abcd");
    let ack = |sent: &[Packet]| {
        let [one] = sent else { panic!("{sent:?}") };
        assert_eq!(one.destination_qp, PEER_QP);
        (one.psn, one.syndrome())
    };
    let is_ack = |syndrome: u8| syndrome >> 5 == 0;

    bench.say(send(0));
    let (acked, syndrome) = ack(&bench.sent());
    assert!(
        acked == psn(0) && is_ack(syndrome),
        "{acked:#x} {syndrome:#x}"
    );
    let mut mad = [0; MAD_LEN];
    Rtu {
        local_comm_id: 0xaaaa_000c,
        remote_comm_id: comm_id,
        private_data: &[],
    }
    .emit(5, &mut mad)
    .unwrap();
    bench.say(datagram(&mad, &Datagram::default()));
    assert_eq!(bench.event(), Some(EventType::Established));

    // A1e: a duplicate.
    bench.say(send(0));
    let (acked, syndrome) = ack(&bench.sent());
    assert!(
        acked == psn(0) && is_ack(syndrome),
        "{acked:#x} {syndrome:#x}"
    );

    // A1c and A1d: a gap, and more of what comes after it.
    bench.say(send(3));
    assert_eq!(ack(&bench.sent()), (psn(1), SEQUENCE_ERROR));
    for nth in [3, 4, 9] {
        bench.say(send(nth));
        assert_eq!(bench.sent(), []);
    }
    bench.say(send(1));
    let (acked, syndrome) = ack(&bench.sent());
    assert!(
        acked == psn(1) && is_ack(syndrome),
        "{acked:#x} {syndrome:#x}"
    );
    for context in 0..2 {
        let received = bench.cm.try_get_recv_comp(id).unwrap().unwrap();
        assert_eq!((received.wr_id, received.byte_len), (context, 4));
    }
    assert!(bench.cm.try_get_recv_comp(id).unwrap().is_none());

    // A1g: unregistered memory.
    let mut write = vec![0; 16];
    write[8..12].copy_from_slice(&0xdead_be00_u32.to_be_bytes());
    write[12..16].copy_from_slice(&4_u32.to_be_bytes());
    write.extend(b"evil");
    bench.say(rc(WRITE_ONLY, qp, psn(2), &write));
    assert_eq!(ack(&bench.sent()), (psn(2), ACCESS_ERROR));
    let state = bench.cm.endpoint(id).unwrap().qp.query().unwrap();
    assert_eq!(state.attr.qp_state, QpState::Err);
    bench.say(send(2));
    assert_eq!(bench.sent(), []);

    Dreq {
        local_comm_id: 0xaaaa_000c,
        remote_comm_id: comm_id,
        remote_qpn: qp,
        ..Dreq::ZERO
    }
    .emit(7, &mut mad)
    .unwrap();
    bench.say(datagram(&mad, &Datagram::default()));
    let sent = bench.sent();
    let mad = Mad::new(sent[0].mad()).unwrap();
    assert_eq!(
        (mad.attribute(), mad.transaction_id()),
        (Attribute::Drep, 7)
    );
    assert_eq!(bench.event(), Some(EventType::Disconnected));
}
