//! CQs: events, overrun and a change of size. What a completion says is with the traffic it is of.

use bareverbs_core::{
    AsyncEvent, CqError, CqInit, Inline, QpAttr, QpAttrMask, QpState, Rc, SendFlags, WcOpcode,
    WcStatus,
};

use crate::lab::{CAP, End, MS, SIGNALED, SILENT, lab, lab_with, ok};

#[test]
fn completion_events() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let send = |a: &mut End<'_, Rc>, b: &mut End<'_, Rc>, flags| {
            b.receive(0, 0, 64);
            a.qp.send_queue()
                .batch()
                .send(0, flags, Inline(b"x"))
                .unwrap();
            lab.pause(MS);
        };
        send(&mut a, &mut b, SILENT);
        assert!(!b.cq.take_event(), "not armed");
        // Armed: one event, however many completions. Who only looks for events finds it as well.
        let mut events = b.cq.events();
        assert!(!events.take(), "not armed");
        while lab.try_wait(&mut b.cq, MS).is_some() {}
        b.cq.arm(false);
        send(&mut a, &mut b, SILENT);
        send(&mut a, &mut b, SILENT);
        assert!(events.take());
        assert!(!events.take());
        assert!(b.cq.take_event());
        assert!(!b.cq.take_event());
        // Solicited only.
        while lab.try_wait(&mut b.cq, MS).is_some() {}
        b.cq.arm(true);
        send(&mut a, &mut b, SILENT);
        assert!(!b.cq.take_event());
        send(&mut a, &mut b, SendFlags::SOLICITED);
        assert!(b.cq.take_event());
        // An error counts as solicited.
        while lab.try_wait(&mut b.cq, MS).is_some() {}
        b.cq.arm(true);
        b.receive(1, 0, 64);
        let error = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        b.qp.modify(&error, QpAttrMask::STATE).unwrap();
        lab.pause(MS);
        assert!(b.cq.take_event());
        assert_eq!(lab.wait(&mut b.cq).status, WcStatus::WrFlushErr);
    });
}

#[test]
fn asking_again_before_the_event_was_seen_makes_no_other() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let events = || lab.world.with_model(1, |model| model.stats().events);
        b.receive(0, 0, 64);
        b.cq.arm(false);
        let before = events();
        a.qp.send_queue()
            .batch()
            .send(0, SILENT, Inline(b"x"))
            .unwrap();
        lab.world.advance(MS);
        // The completion lies there, and the event as well, but the driver has not looked. A loop that asks in each of
        // its turns would fill the event queue.
        for _ in 0..1000 {
            b.cq.arm(false);
        }
        lab.world.advance(MS);
        assert_eq!(events() - before, 1);
        lab.pause(MS);
        assert!(b.cq.take_event());
        // It arms again, and is notified of the next completion, not of those that were reported already.
        b.cq.arm(true);
        b.cq.arm(false);
        lab.pause(MS);
        assert!(!b.cq.take_event());
        b.receive(1, 0, 64);
        a.qp.send_queue()
            .batch()
            .send(1, SILENT, Inline(b"y"))
            .unwrap();
        lab.pause(MS);
        assert!(b.cq.take_event());
        assert_eq!(events() - before, 2);
    });
}

#[test]
fn cq_overrun_is_reported() {
    lab(|lab| {
        let mut ends = [lab.end_with::<Rc>(0, CAP, 3, None), lab.end::<Rc>(1, CAP)];
        lab.connect(&mut ends, &|_| {});
        let [mut a, b] = ends;
        let remote = b.remote(0);
        for id in 0..8 {
            a.qp.send_queue()
                .batch()
                .write(id, SIGNALED, remote, Inline(b"x"))
                .unwrap();
        }
        lab.pause(10 * MS);
        let mut taken = 0;
        let error = loop {
            match a.cq.poll() {
                Ok(Some(completion)) => {
                    assert_eq!(completion.wr_id(), taken);
                    taken += 1;
                }
                Ok(None) => panic!("the CQ does not report that it was overrun"),
                Err(error) => break error,
            }
        };
        assert!((3..=4).contains(&taken), "{taken}");
        assert_eq!(
            error,
            CqError::Failed {
                cqn: a.cq.cqn(),
                syndrome: 1
            }
        );
        let events: Vec<_> =
            std::iter::from_fn(|| lab.sides[0].device.next_async_event()).collect();
        let expected = AsyncEvent::CqError {
            cqn: a.cq.cqn(),
            syndrome: 1,
        };
        assert!(events.contains(&expected), "{events:?}");
    });
}

#[test]
fn resizing_under_traffic() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let mut next_id = 0;
        for (round, size) in [31, 255, 15, 127, 63, 15].into_iter().enumerate() {
            let burst = 3 + round as u64;
            for n in 0..burst {
                b.receive(next_id + n, 0, 64);
                a.qp.send_queue()
                    .batch()
                    .send(next_id + n, SIGNALED, Inline(b"x"))
                    .unwrap();
            }
            lab.pause(MS);
            b.cq.resize(size).unwrap();
            a.cq.resize(size).unwrap();
            assert_eq!(b.cq.cqe(), size);
            for n in 0..burst {
                ok(lab.wait(&mut b.cq), next_id + n, WcOpcode::Recv);
                ok(lab.wait(&mut a.cq), next_id + n, WcOpcode::Send);
            }
            next_id += burst;
        }
        assert_eq!(
            (a.cq.garbage_completions(), b.cq.garbage_completions()),
            (0, 0)
        );
    });
}

/// The completions of a QP from before RESET are found in the queue itself. The counters that QUERY_CQ gives may lag
/// behind what was written.
#[test]
fn completions_before_reset_are_dropped_with_lagging_counters() {
    lab_with(
        |mut card| {
            card.cq_counters_lag = true;
            card
        },
        |lab| {
            let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
            lab.connect(&mut ends, &|_| {});
            for id in 0..3 {
                ends[1].receive(100 + id, 0, 64);
                let sender = &mut ends[0].qp;
                let mut batch = sender.send_queue().batch();
                batch.send(id, SIGNALED, Inline(b"before")).unwrap();
            }
            lab.pause(MS);
            // One is taken, the others lie in both queues.
            ok(lab.wait(&mut ends[0].cq), 0, WcOpcode::Send);
            for end in &mut ends {
                let reset = QpAttr {
                    qp_state: QpState::Reset,
                    ..QpAttr::DEFAULT
                };
                end.qp.modify(&reset, QpAttrMask::STATE).unwrap();
            }
            lab.connect(&mut ends, &|_| {});
            for end in &mut ends {
                assert_eq!(end.cq.poll().unwrap().map(|c| c.wr_id()), None);
            }
            ends[1].receive(200, 0, 64);
            let sender = &mut ends[0].qp;
            let mut batch = sender.send_queue().batch();
            batch.send(7, SIGNALED, Inline(b"after")).unwrap();
            drop(batch);
            ok(lab.wait(&mut ends[0].cq), 7, WcOpcode::Send);
            ok(lab.wait(&mut ends[1].cq), 200, WcOpcode::Recv);
            for end in &ends {
                assert_eq!(end.cq.garbage_completions(), 0);
            }
        },
    );
}

/// A resize moves completions on by one index, and with them those that a reset left to be dropped.
#[test]
fn completions_before_reset_are_dropped_by_a_resize() {
    lab_with(
        |card| card,
        |lab| {
            let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
            lab.connect(&mut ends, &|_| {});
            for id in 0..3 {
                ends[1].receive(100 + id, 0, 64);
                let sender = &mut ends[0].qp;
                let mut batch = sender.send_queue().batch();
                batch.send(id, SIGNALED, Inline(b"before")).unwrap();
            }
            lab.pause(MS);
            for end in &mut ends {
                let reset = QpAttr {
                    qp_state: QpState::Reset,
                    ..QpAttr::DEFAULT
                };
                end.qp.modify(&reset, QpAttrMask::STATE).unwrap();
                end.cq.resize(300).unwrap();
            }
            lab.connect(&mut ends, &|_| {});
            for end in &mut ends {
                assert_eq!(end.cq.poll().unwrap().map(|c| c.wr_id()), None);
                assert_eq!(end.cq.garbage_completions(), 0);
            }
        },
    );
}

#[test]
fn a_dropped_cq_is_destroyed_with_the_last_queue_that_uses_it() {
    lab(|lab| {
        let device = lab.sides[0].device;
        let cqs = || lab.world.with_model(0, |model| model.objects().cqs);
        let before = (cqs(), device.bytes_quarantined());
        let [a, mut b] = lab.pair::<Rc>();
        let End { mut qp, cq, buffer } = a;
        let handle = cq.handle();
        // The two queues of the QP, and the handle.
        let Err((cq, CqError::Busy { users: 3 })) = cq.destroy() else {
            panic!("a CQ in use was destroyed");
        };
        drop(cq);
        assert_eq!(cqs(), before.0 + 1, "it has to outlive its QP");
        // The device still writes completions to it, which are not taken any more.
        for at in 0..20 {
            b.receive(at, 0, 64);
            qp.send_queue()
                .batch()
                .send(at, SIGNALED, Inline(b"x"))
                .unwrap();
        }
        lab.pause(MS);
        drop(qp);
        assert_eq!(cqs(), before.0 + 1, "it has to outlive its handles");
        drop(handle.clone());
        assert_eq!(cqs(), before.0 + 1, "it has to outlive all its handles");
        drop(handle);
        assert_eq!((cqs(), device.bytes_quarantined()), before);
        drop((b, buffer));
    });
}

#[test]
fn dropped_cqs_give_their_slots_and_their_memory_back() {
    lab(|lab| {
        let device = lab.sides[0].device;
        // More than there are slots, and more than the quarantine remembers.
        for _ in 0..100 {
            let cq = device.create_cq(CqInit::new(10)).unwrap();
            let handle = cq.handle();
            drop(cq);
            assert!(device.bytes_quarantined() > 0);
            drop(handle);
            assert_eq!(device.bytes_quarantined(), 0);
        }
    });
}
