//! Work that fails, with the right status on both sides, and the work behind it, which comes back flushed.

use bareverbs_core::{
    Access, FlightRecorder, Inline, LKey, QpAttr, QpAttrMask, QpState, RKey, Rc, RecordKind,
    Remote, Sge, WcOpcode, WcStatus,
};
use connectx_model::link::fault::Action;

use crate::lab::{ALL, CAP, End, MS, SIGNALED, SILENT, flushed, lab, ok};

/// No receive is posted: with retries the request waits, without it fails, and the queue is flushed.
#[test]
fn receiver_not_ready() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        a.qp.send_queue()
            .batch()
            .send(1, SIGNALED, Inline(b"late"))
            .unwrap();
        assert_eq!(lab.try_wait(&mut a.cq, 5 * MS), None);
        b.receive(2, 0, 64);
        ok(lab.wait(&mut a.cq), 1, WcOpcode::Send);
        ok(lab.wait(&mut b.cq), 2, WcOpcode::Recv);

        let [mut a, b] = lab.pair_with::<Rc>(CAP, &|attr| attr.rnr_retry = 2);
        for id in 0..3 {
            a.qp.send_queue()
                .batch()
                .send(id, SILENT, Inline(b"x"))
                .unwrap();
        }
        let wc = lab.wait(&mut a.cq);
        assert_eq!((wc.wr_id, wc.status), (0, WcStatus::RnrRetryExcErr));
        flushed(lab, &mut a, &[1, 2]);
        drop(b);
    });
}

#[test]
fn a_request_without_a_receive_fails() {
    lab(|lab| {
        let [mut a, b] = lab.pair_with::<Rc>(CAP, &|attr| (attr.timeout, attr.retry_cnt) = (8, 3));
        lab.world
            .with_wire(|wire| wire.rule(0, u32::MAX, Action::Drop, |_, _| true));
        let remote = b.remote(0);
        a.qp.send_queue()
            .batch()
            .write(1, SILENT, remote, Inline(b"x"))
            .unwrap();
        a.qp.send_queue()
            .batch()
            .write(2, SILENT, remote, Inline(b"y"))
            .unwrap();
        let wc = lab.wait(&mut a.cq);
        assert_eq!((wc.wr_id, wc.status), (1, WcStatus::RetryExcErr));
        flushed(lab, &mut a, &[2]);
        // The flight recorder has the error, with the vendor's syndrome, and none of those that follow from it.
        let recorded = lab.sides[0].device.recorder().into_iter();
        let recorded = recorded.flat_map(FlightRecorder::records);
        let errors: Vec<_> = recorded
            .filter_map(|record| match record.kind {
                RecordKind::Completion(error) => Some(error),
                _ => None,
            })
            .collect();
        assert_eq!(errors, [wc.error()]);
        assert_ne!(errors[0].vendor_err, 0);
        // Posting goes on in the error state, and is flushed.
        a.qp.send_queue()
            .batch()
            .send(3, SILENT, Inline(b"z"))
            .unwrap();
        a.receive(4, 0, 64);
        flushed(lab, &mut a, &[3, 4]);
        assert_eq!(a.qp.query().unwrap().attr.qp_state, QpState::Err);
        lab.world.with_wire(|wire| wire.clear_rules());
    });
}

/// The right status on both sides for each kind of wrong access.
#[test]
fn access_violations() {
    lab(|lab| {
        let pd = &lab.sides[1].pd;
        let read_only = pd.alloc_buffer(64, Access::REMOTE_READ).unwrap();
        let local = pd.alloc_buffer(64, Access::LOCAL_WRITE).unwrap();
        let stale = pd.alloc_buffer(64, ALL).unwrap();
        let gone = Remote {
            addr: stale.addr(),
            rkey: stale.rkey(),
        };
        drop(stale);
        // The same index may come back, with another variant.
        let _again = pd.alloc_buffer(64, ALL).unwrap();
        let at = |buffer: &bareverbs_core::Buffer<'_, _>, offset: u64| Remote {
            addr: buffer.addr() + offset,
            rkey: buffer.rkey(),
        };
        type Post<'a> = &'a dyn Fn(&mut End<'_, Rc>, Remote);
        let write: Post<'_> = &|end, remote| {
            end.qp
                .send_queue()
                .batch()
                .write(1, SILENT, remote, Inline(b"12345678"))
                .unwrap()
        };
        let read: Post<'_> = &|end, remote| {
            let sge = end.sge(0, 8);
            end.qp
                .send_queue()
                .batch()
                .read(1, SILENT, remote, &[sge])
                .unwrap();
        };
        let atomic: Post<'_> = &|end, remote| {
            let sge = end.sge(0, 8);
            end.qp
                .send_queue()
                .batch()
                .fetch_add(1, SILENT, remote, 1, sge)
                .unwrap();
        };
        let unknown = Remote {
            rkey: RKey(0x00ff_ff00),
            ..gone
        };
        let cases: [(&str, Post<'_>, Remote, WcStatus); 10] = [
            (
                "write to read-only",
                write,
                at(&read_only, 0),
                WcStatus::RemAccessErr,
            ),
            (
                "atomic on read-only",
                atomic,
                at(&read_only, 0),
                WcStatus::RemAccessErr,
            ),
            (
                "write to local memory",
                write,
                at(&local, 0),
                WcStatus::RemAccessErr,
            ),
            (
                "read of local memory",
                read,
                at(&local, 0),
                WcStatus::RemAccessErr,
            ),
            (
                "read past the end",
                read,
                at(&read_only, 57),
                WcStatus::RemAccessErr,
            ),
            (
                "read before the start",
                read,
                Remote {
                    addr: read_only.addr() - 1,
                    ..at(&read_only, 0)
                },
                WcStatus::RemAccessErr,
            ),
            (
                "read round the end of addresses",
                read,
                Remote {
                    addr: u64::MAX - 3,
                    ..at(&read_only, 0)
                },
                WcStatus::RemAccessErr,
            ),
            ("stale key", read, gone, WcStatus::RemAccessErr),
            ("unknown key", write, unknown, WcStatus::RemAccessErr),
            (
                "unaligned atomic",
                atomic,
                Remote {
                    addr: 0,
                    rkey: RKey(0),
                },
                WcStatus::RemInvReqErr,
            ),
        ];
        for (name, post, remote, expected) in cases {
            let [mut a, mut b] = lab.pair::<Rc>();
            let remote = if expected == WcStatus::RemInvReqErr {
                b.remote(3)
            } else {
                remote
            };
            b.receive(9, 0, 64);
            post(&mut a, remote);
            let wc = lab.wait(&mut a.cq);
            assert_eq!((wc.wr_id, wc.status), (1, expected), "{name}");
            assert_ne!(wc.syndrome, 0);
            // The responder's QP is in error, too: its receives come back.
            let wc = lab.wait(&mut b.cq);
            assert_eq!((wc.wr_id, wc.status), (9, WcStatus::WrFlushErr), "{name}");
        }
        // A QP that allows nothing.
        let [mut a, b] = lab.pair_with::<Rc>(CAP, &|attr| attr.qp_access_flags = Access::empty());
        let remote = b.remote(0);
        write(&mut a, remote);
        let wc = lab.wait(&mut a.cq);
        assert!(
            matches!(wc.status, WcStatus::RemAccessErr | WcStatus::RemInvReqErr),
            "{wc:?}"
        );
    });
}

/// `state` said RTS after a WRITE that had failed, and a program that printed it sent its reader the wrong way.
#[test]
fn the_state_after_a_failed_write_is_error_at_both_ends() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        b.receive(9, 0, 64);
        let unknown = Remote {
            rkey: RKey(0x00ff_ff00),
            ..b.remote(0)
        };
        a.qp.send_queue()
            .batch()
            .write(1, SILENT, unknown, Inline(b"12345678"))
            .unwrap();
        assert_eq!([a.qp.state(), b.qp.state()], [QpState::Rts; 2]);
        assert_eq!(lab.wait(&mut a.cq).status, WcStatus::RemAccessErr);
        assert_eq!(lab.wait(&mut b.cq).status, WcStatus::WrFlushErr);
        assert_eq!([a.qp.state(), b.qp.state()], [QpState::Err; 2]);
        assert_eq!(a.qp.query().unwrap().attr.qp_state, QpState::Err);
        // After a reset it is gone.
        let reset = QpAttr {
            qp_state: QpState::Reset,
            ..QpAttr::DEFAULT
        };
        b.qp.modify(&reset, QpAttrMask::STATE).unwrap();
        assert_eq!(b.qp.state(), QpState::Reset);
    });
}

#[test]
fn local_errors() {
    lab(|lab| {
        // A key that does not exist, memory past the end of a region.
        let past = |end: &End<'_, Rc>| Sge {
            addr: end.buffer.addr() + (1 << 16) - 3,
            ..end.sge(0, 4)
        };
        let unknown = |end: &End<'_, Rc>| Sge {
            lkey: LKey(0x00ff_ee00),
            ..end.sge(0, 4)
        };
        for bad in [&past as &dyn Fn(&End<'_, Rc>) -> Sge, &unknown] {
            let [mut a, b] = lab.pair::<Rc>();
            let (sge, remote) = (bad(&a), b.remote(0));
            a.qp.send_queue()
                .batch()
                .write(1, SILENT, remote, sge)
                .unwrap();
            assert_eq!(lab.wait(&mut a.cq).status, WcStatus::LocProtErr);
        }
        // The message is longer than the receive.
        let [mut a, mut b] = lab.pair::<Rc>();
        b.receive(1, 0, 3);
        a.qp.send_queue()
            .batch()
            .send(2, SILENT, Inline(b"four"))
            .unwrap();
        let wc = lab.wait(&mut b.cq);
        assert_eq!((wc.wr_id, wc.status), (1, WcStatus::LocLenErr));
        let wc = lab.wait(&mut a.cq);
        assert_eq!((wc.wr_id, wc.status), (2, WcStatus::RemInvReqErr));
        // A receive that names memory which cannot be written.
        let [mut a, mut b] = lab.pair::<Rc>();
        let sealed = lab.sides[1].pd.alloc_buffer(64, Access::empty()).unwrap();
        b.qp.recv_queue()
            .post(3, &[sealed.sge(0, 64).unwrap()])
            .unwrap();
        a.qp.send_queue()
            .batch()
            .send(4, SILENT, Inline(b"four"))
            .unwrap();
        assert_eq!(lab.wait(&mut b.cq).status, WcStatus::LocProtErr);
        assert_eq!(lab.wait(&mut a.cq).status, WcStatus::RemOpErr);
    });
}

#[test]
fn moving_to_error_flushes_in_order() {
    lab(|lab| {
        let [mut a, b] = lab.pair::<Rc>();
        for id in 0..5 {
            a.receive(100 + id, 0, 64);
        }
        // Nothing of this leaves: the other side has no receive, and the retries are endless.
        for id in 0..5 {
            a.qp.send_queue()
                .batch()
                .send(id, SILENT, Inline(b"x"))
                .unwrap();
        }
        lab.pause(MS);
        let error = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        a.qp.modify(&error, QpAttrMask::STATE).unwrap();
        let mut sends = Vec::new();
        let mut receives = Vec::new();
        for _ in 0..10 {
            let wc = lab.wait(&mut a.cq);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            if wc.wr_id < 100 {
                sends.push(wc.wr_id)
            } else {
                receives.push(wc.wr_id)
            }
        }
        assert_eq!(sends, [0, 1, 2, 3, 4]);
        assert_eq!(receives, [100, 101, 102, 103, 104]);

        // Through RESET it works again, with the other side reset as well.
        let mut ends = [a, b];
        for end in &mut ends {
            let reset = QpAttr {
                qp_state: QpState::Reset,
                ..QpAttr::DEFAULT
            };
            end.qp.modify(&reset, QpAttrMask::STATE).unwrap();
        }
        lab.connect(&mut ends, &|_| {});
        let [mut a, mut b] = ends;
        b.receive(1, 0, 64);
        a.qp.send_queue()
            .batch()
            .send(2, SIGNALED, Inline(b"again"))
            .unwrap();
        ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
        ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
    });
}
