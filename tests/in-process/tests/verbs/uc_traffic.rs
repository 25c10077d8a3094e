//! Traffic of an unreliable connection, and its losses without an error.

use bareverbs_core::{Uc, WcOpcode};
use connectx_model::link::fault::Action;

use crate::lab::{LENGTHS, MS, SIGNALED, got, lab, ok};

#[test]
fn uc_sends_and_writes() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Uc>();
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            b.receive(id, 0, 1 << 15);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send_imm(id, SIGNALED, 3, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            assert_eq!(
                got(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
                len
            );
            b.assert_pattern(0, len, id);
            let (sge, remote) = (a.sge(0, len), b.remote(32_000));
            a.qp.send_queue()
                .batch()
                .write(50 + id, SIGNALED, remote, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), 50 + id, WcOpcode::RdmaWrite);
            lab.pause(MS);
            b.assert_pattern(32_000, len, id);
        }
        // A lost message is not reported to either side.
        lab.world
            .with_wire(|wire| wire.rule(0, 1, Action::Drop, |_, _| true));
        b.receive(99, 0, 64);
        let sge = a.sge(0, 4);
        a.qp.send_queue().batch().send(60, SIGNALED, sge).unwrap();
        ok(lab.wait(&mut a.cq), 60, WcOpcode::Send);
        assert_eq!(lab.try_wait(&mut b.cq, 100 * MS), None);
    });
}
