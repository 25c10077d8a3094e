//! A completion queue under its QPs: in use, dropped, left behind by a QP, resized, moderated.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bareverbs_core::{CqError, CqInit, QpAttr, QpAttrMask, QpInitAttr, QpState, Rc, SendFlags};
use bareverbs_firmware_cmds::opcode::Opcode;

use crate::rig::{cap, doorbells, pair, to_rts};
use crate::support::Fake;
use crate::support::firmware::Action;
use crate::{SGE, commands, poll};

#[test]
fn a_cq_in_use_is_not_destroyed() {
    with_device!(|fake, _rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (cq, qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 8, true);
        let (cq, error) = cq.destroy().unwrap_err();
        assert_eq!(error, CqError::Busy { users: 2 });
        assert_eq!(commands(&fake, Opcode::DestroyCq).len(), 0);
        qp.destroy().map_err(|(_, error)| error).unwrap();
        cq.destroy().map_err(|(_, error)| error).unwrap();
        assert_eq!(
            device.create_cq(CqInit::new(0)).unwrap_err(),
            CqError::Size {
                asked: 0,
                limit: (1 << 22) - 1
            }
        );
        let cqs: Vec<_> = (0..4)
            .map(|_| device.create_cq(CqInit::new(1)).unwrap())
            .collect();
        assert_eq!(
            device.create_cq(CqInit::new(1)).unwrap_err(),
            CqError::NoSlot { limit: 4 }
        );
        drop(cqs);
    });
}

/// A CQ dropped under its QPs is kept from the device's reach of memory, and all is returned when the device closes.
#[test]
fn a_cq_dropped_while_in_use_stays_until_close() {
    with_device!(|fake, _rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (cq, qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 8, true);
        drop(cq);
        assert_eq!(commands(&fake, Opcode::DestroyCq).len(), 0);
        let before = fake.live();
        drop(qp);
        assert!(
            fake.live() < before,
            "the QP's memory goes without the CQ's owner"
        );
    });
}

/// Completions that a destroyed QP has left are never seen, nor do they harm a QP in the same slot.
#[test]
fn a_destroyed_qp_leaves_nothing_in_its_cq() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (mut cq, mut first) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 31, true);
        let cqn = cq.cqn().number();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: cap(4, 4, 1, 0),
            sq_sig_all: true,
        };
        let mut other = pd.create_qp::<Rc>(&mut init).unwrap();
        to_rts(&mut other);
        for qp in [&mut first, &mut other] {
            for id in 0..3 {
                qp.send_queue()
                    .batch()
                    .send(id, SendFlags::empty(), SGE)
                    .unwrap();
                qp.recv_queue().post(10 + id, &[SGE]).unwrap();
            }
        }
        for counter in 0..3 {
            rig.complete(&fake, cqn, 0x100, 0, counter, 0x0a);
            rig.complete(&fake, cqn, 0x101, 0, counter, 0x0a);
            rig.complete(&fake, cqn, 0x100, 2, counter, 0);
        }
        assert_eq!(
            poll(&mut cq).map(|wc| (wc.qp_num.number(), wc.wr_id)),
            Some((0x100, 0))
        );
        let before = fake.live();
        drop(first);
        assert_eq!(fake.live(), before, "kept until the CQ's owner has looked");
        let left: Vec<_> = std::iter::from_fn(|| poll(&mut cq))
            .map(|wc| (wc.qp_num.number(), wc.wr_id))
            .collect();
        assert_eq!(left, [(0x101, 0), (0x101, 1), (0x101, 2)]);
        assert!(fake.live() < before);
        assert_eq!(cq.garbage_completions(), 0);
        // Without a poll in between: creating executes deferred destroys when slots run out.
        for _ in 0..20 {
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: cap(4, 4, 1, 0),
                sq_sig_all: true,
            };
            drop(pd.create_qp::<Rc>(&mut init).expect("slots come back"));
        }
        let _ = other;
    });
}

#[test]
fn resizing_keeps_what_lies_in_the_cq() {
    for (from, to) in [(3, 15), (15, 3), (7, 31), (2, 63)] {
        with_device!(|fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(8, 0, 1, 0), from, true);
            let cqn = cq.cqn().number();
            let mut next = 0u16;
            let mut seen = 0u64;
            for round in 0..6 {
                for _ in 0..(round % 3).min(from) {
                    qp.send_queue()
                        .batch()
                        .send(next.into(), SendFlags::empty(), SGE)
                        .unwrap();
                    rig.complete(&fake, cqn, 0x100, 0, next, 0x0a);
                    next += 1;
                }
                let size = if round % 2 == 0 { to } else { from };
                rig.resize(&fake, &mut cq, size);
                assert_eq!(cq.cqe(), (size + 1).next_power_of_two() - 1);
                while let Some(wc) = poll(&mut cq) {
                    assert_eq!(wc.wr_id, seen);
                    seen += 1;
                }
                assert_eq!(seen, u64::from(next));
            }
            assert_eq!(cq.garbage_completions(), 0);
        });
    }
}

/// A QP that is reset while another thread resizes its CQ: the thread that resets waits, and lets the platform relax, which
/// is where cooperative threads take turns. Its completions are dropped in the new ring.
#[test]
fn a_reset_during_a_resize_waits_for_it() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 0, 1, 0), 7, true);
        let cqn = cq.cqn().number();
        for id in 0..3 {
            let mut batch = qp.send_queue().batch();
            batch.send(id.into(), SendFlags::empty(), SGE).unwrap();
            drop(batch);
            rig.complete(&fake, cqn, 0x100, 0, id, 0x0a);
        }
        let answer = Action::After(Duration::from_micros(100), Box::new(Action::Normal));
        rig.lock().instead.push((Opcode::ModifyCq, answer));
        // The thread that resizes stands still until the other one, which has nothing to wait for but the resize, has
        // relaxed some times.
        let resizer = thread::current().id();
        let (release, released) = mpsc::channel();
        let released = Mutex::new(Some(released));
        let relaxed = AtomicU32::new(0);
        let in_time = Arc::new(AtomicBool::new(false));
        let told = in_time.clone();
        fake.lock().on_relax = Some(Arc::new(move |fake: &Fake| {
            let posted = |opcode| !commands(fake, opcode).is_empty();
            if thread::current().id() != resizer {
                if posted(Opcode::Qp2Rst) && relaxed.fetch_add(1, Ordering::AcqRel) == 10 {
                    release.send(()).unwrap();
                }
            } else if posted(Opcode::ModifyCq)
                && let Some(released) = released.lock().unwrap().take()
            {
                let released = released.recv_timeout(Duration::from_secs(30));
                told.store(released.is_ok(), Ordering::Release);
            }
        }));
        thread::scope(|scope| {
            scope.spawn(|| {
                while commands(&fake, Opcode::ModifyCq).is_empty() {
                    thread::yield_now();
                }
                let reset = QpAttr {
                    qp_state: QpState::Reset,
                    ..QpAttr::DEFAULT
                };
                qp.modify(&reset, QpAttrMask::STATE).unwrap();
            });
            rig.resize(&fake, &mut cq, 63);
        });
        fake.lock().on_relax = None;
        assert!(in_time.load(Ordering::Acquire), "the reset did not relax");
        assert_eq!((poll(&mut cq), cq.garbage_completions()), (None, 0));
    });
}

#[test]
fn moderation() {
    with_device!(|fake, _rig, device| {
        let mut cq = device.create_cq(CqInit::new(8)).unwrap();
        cq.modify(16, 100).unwrap();
        let input = commands(&fake, Opcode::ModifyCq).pop().unwrap();
        assert_eq!(input[12..16], [0, 0, 0, 3]);
        assert_eq!(
            cq.modify(1, 0x1000),
            Err(CqError::Size {
                asked: 0x1000,
                limit: 0xfff
            })
        );
        doorbells(&fake);
    });
}
