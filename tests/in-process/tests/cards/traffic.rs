//! A reliable connection between two cards of a kind: sends, writes, reads, and atomics where the card offers them.

use bareverbs_core::{Access, CqInit, QpInitAttr, Rc, WcOpcode};
use connectx_model::Card;

use crate::lab::{self, CAP, End, Lab, SIGNALED, ok};

const LENGTHS: [usize; 5] = [0, 1, 1024, 4097, 20_001];

/// A QP that may do what the card can.
fn end<'d>(lab: &Lab<'d>, node: usize, access: Access) -> End<'d, Rc> {
    let side = &lab.sides[node];
    let cq = side.device.create_cq(CqInit::new(127)).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let qp = side.pd.create_qp::<Rc>(&mut init).expect("QP");
    let buffer = side.pd.alloc_buffer(1 << 16, access).expect("buffer");
    End { qp, cq, buffer }
}

fn traffic(lab: &Lab<'_>) {
    let atomics = lab.sides[0].device.capabilities().has_atomics();
    let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    if atomics {
        access |= Access::REMOTE_ATOMIC;
    }
    let mut ends = [end(lab, 0, access), end(lab, 1, access)];
    lab.connect(&mut ends, &|attr| attr.qp_access_flags = access);
    let [mut a, mut b] = ends;
    for (len, seed) in LENGTHS.into_iter().zip(1..) {
        a.fill(0, len, seed);
        b.receive(seed, 0, 1 << 15);
        let sge = a.sge(0, len);
        a.qp.send_queue().batch().send(2, SIGNALED, sge).unwrap();
        ok(lab.wait(&mut b.cq), seed, WcOpcode::Recv);
        ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        b.assert_pattern(0, len, seed);

        let (sge, to) = (a.sge(0, len), b.remote(1 << 15));
        a.qp.send_queue()
            .batch()
            .write(3, SIGNALED, to, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 3, WcOpcode::RdmaWrite);
        b.assert_pattern(1 << 15, len, seed);

        b.fill(0, len, seed + 100);
        let (sge, from) = (a.sge(1 << 15, len), b.remote(0));
        a.qp.send_queue()
            .batch()
            .read(4, SIGNALED, from, &[sge])
            .unwrap();
        ok(lab.wait(&mut a.cq), 4, WcOpcode::RdmaRead);
        a.assert_pattern(1 << 15, len, seed + 100);
    }
    if atomics {
        b.buffer.copy_in(0, &40u64.to_ne_bytes()).unwrap();
        let (sge, at) = (a.sge(0, 8), b.remote(0));
        a.qp.send_queue()
            .batch()
            .fetch_add(5, SIGNALED, at, 2, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 5, WcOpcode::FetchAdd);
        let mut word = [0; 8];
        a.buffer.copy_out(0, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 40);
        b.buffer.copy_out(0, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 42);
    }
}

#[test]
fn every_card_carries_verified_data() {
    crate::on_each(|card| {
        let of_this_kind =
            |plain: connectx_model::Config| connectx_model::Config::card(card, plain.mac[5]);
        lab::lab_with(of_this_kind, |lab| {
            // The recorded card has none whose results are in the host's byte order.
            let offered = !matches!(card, Card::ConnectX4Lx | Card::ConnectX4);
            let has = lab.sides[0].device.capabilities().has_atomics();
            assert_eq!(has, offered, "{card}");
            traffic(lab);
        });
    });
}
