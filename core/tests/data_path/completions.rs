//! Polling, and the driver's handling of the entries that a device writes: ownership, garbage, errors, events, overruns.

use bareverbs_core::{
    CqError, CqInit, PostError, QpInitAttr, QpState, Qpn, Rc, SendFlags, SrqAttr, Wc, WcStatus,
};
use bareverbs_firmware_cmds::event::Event;
use bareverbs_firmware_cmds::numbers::Cqn;

use crate::rig::{cap, cqe, doorbells, pair, to_rts};
use crate::{SGE, SIGNALED, poll};

/// Rings of every small size, many times round: the parity decides, and the record follows.
#[test]
fn ownership_changes_with_every_pass() {
    for cqe in [1, 2, 3, 7, 8] {
        with_device!(|fake, rig, device, pd| {
            let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(8, 0, 1, 0), cqe, true);
            let size = (cqe + 1).next_power_of_two();
            assert_eq!(cq.cqe(), size - 1);
            let mut next = 0u16;
            for burst in (1..=cqe).cycle().take(50) {
                let first = next;
                for _ in 0..burst {
                    qp.send_queue()
                        .batch()
                        .send(next.into(), SIGNALED, SGE)
                        .unwrap();
                    next += 1;
                }
                assert_eq!(poll(&mut cq), None);
                for counter in first..next {
                    rig.complete(&fake, cq.cqn().number(), 0x100, 0, counter, 0x0a);
                }
                let mut wcs = [Wc::EMPTY; 16];
                let batch = burst % 2 == 0;
                if batch {
                    assert_eq!(cq.poll_wcs(&mut wcs).unwrap(), burst as usize);
                    assert_eq!(wcs[0].wr_id, u64::from(first));
                    assert_eq!(rig.cq_records(&fake, cq.cqn().number()).0, u32::from(next));
                } else {
                    for id in first..next {
                        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(id.into()));
                        // The completion at hand is not given back yet.
                        assert_eq!(rig.cq_records(&fake, cq.cqn().number()).0, u32::from(id));
                    }
                }
                assert_eq!(poll(&mut cq), None);
            }
        });
    }
}

/// Nothing that a broken device writes is reported, indexes anything, or prevents correct completions.
#[test]
fn garbage_is_counted_and_dropped() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 63, false);
        let cqn = cq.cqn().number();
        let user = rig.lock().qps[&0x100].user_index;
        qp.send_queue().batch().send(1, SIGNALED, SGE).unwrap();
        qp.recv_queue().post(2, &[SGE]).unwrap();
        let garbage = [
            cqe(user + 1, 0x100, 0, 0, 0x0a),
            cqe(0xff_ffff, 0x100, 0, 0, 0x0a),
            cqe(0x7f_ffff, 0x100, 2, 0, 0),
            cqe(user, 0x101, 0, 0, 0x0a),
            cqe(user, 0x101, 13, 0, 0x0a),
            // Never posted: the next send, one far away, the second receive.
            cqe(user, 0x100, 0, 1, 0x0a),
            cqe(user, 0x100, 13, 7, 0x0a),
            cqe(user, 0x100, 0, 0xffff, 0x0a),
            cqe(user, 0x100, 2, 1, 0),
            // Opcodes that no RC QP gets.
            cqe(user, 0x100, 6, 0, 0),
            cqe(user, 0x100, 8, 0, 0),
            cqe(user, 0x100, 9, 0, 0),
            cqe(user, 0x100, 10, 0, 0),
            cqe(user, 0x100, 11, 0, 0),
            cqe(user, 0x100, 12, 0, 0),
        ];
        for bytes in garbage {
            rig.cqe(&fake, cqn, bytes);
        }
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), garbage.len() as u64);
        rig.complete(&fake, cqn, 0x100, 0, 0, 0x0a);
        // Twice: the second one completes nothing.
        rig.complete(&fake, cqn, 0x100, 0, 0, 0x0a);
        rig.complete(&fake, cqn, 0x100, 2, 0, 0);
        rig.complete(&fake, cqn, 0x100, 2, 0, 0);
        rig.complete(&fake, cqn, 0x100, 14, 0, 0);
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(1));
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(2));
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), garbage.len() as u64 + 3);
        assert_eq!((qp.send_queue().free(), qp.recv_queue().free()), (4, 4));
        // Pure noise, thousands of it.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..5000 {
            let mut bytes = [0; 64];
            for byte in &mut bytes {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                *byte = seed as u8;
            }
            if bytes[0x3f] >> 4 == 0xf {
                bytes[0x3f] = 0;
            }
            rig.cqe(&fake, cqn, bytes);
            assert_eq!(poll(&mut cq), None);
        }
        qp.send_queue().batch().send(3, SIGNALED, SGE).unwrap();
        rig.complete(&fake, cqn, 0x100, 0, 1, 0x0a);
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(3));
    });
}

/// A completion counts in the CQs of its QP only. The owner of another CQ does not look at memory that they may free.
#[test]
fn a_completion_in_another_cq_is_garbage() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, false);
        let (mut other, mut neighbour) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, false);
        let (qpn, others) = (qp.qpn().number(), other.cqn().number());
        for id in 0..2 {
            qp.send_queue().batch().send(id, SIGNALED, SGE).unwrap();
            qp.recv_queue().post(10 + id, &[SGE]).unwrap();
            neighbour.recv_queue().post(20 + id, &[SGE]).unwrap();
        }
        // Before, between and after completions that belong there.
        for round in 0..2 {
            for (op, counter) in [(0, 0), (0, 1), (13, 1), (2, 0), (14, 0)] {
                rig.complete(&fake, others, qpn, op, counter, 0x0a);
            }
            rig.complete(&fake, others, neighbour.qpn().number(), 2, round, 0);
            assert_eq!(
                poll(&mut other).map(|wc| wc.wr_id),
                Some(20 + u64::from(round))
            );
        }
        assert_eq!(poll(&mut other), None);
        assert_eq!(other.garbage_completions(), 10);
        assert_eq!((qp.send_queue().free(), qp.recv_queue().free()), (2, 2));
        // Where they belong they are what they say.
        for (op, counter, id) in [(0, 0, 0), (0, 1, 1), (2, 0, 10), (2, 1, 11)] {
            rig.complete(&fake, cq.cqn().number(), qpn, op, counter, 0x0a);
            assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(id));
        }
        assert_eq!((cq.garbage_completions(), qp.state()), (0, QpState::Rts));
    });
}

/// The same for a QP that is destroyed: its SRQ gets nothing back by way of a CQ that the QP did not have, and by way of its
/// own CQ not after the CQ has let go of it.
#[test]
fn a_dead_qps_completion_in_another_cq_is_garbage() {
    with_device!(|fake, rig, device, pd| {
        let mut size = SrqAttr {
            max_wr: 3,
            max_sge: 1,
            srq_limit: 0,
        };
        let mut srq = pd.create_srq(&mut size).unwrap();
        let (mut other, _neighbour) = pair::<Rc>(&device, &pd, cap(1, 1, 1, 0), 15, false);
        let mut cq = device.create_cq(CqInit::new(15)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: Some(&srq),
            cap: cap(1, 0, 1, 0),
            sq_sig_all: false,
        };
        let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
        to_rts(&mut qp);
        let qpn = qp.qpn().number();
        let user = rig.lock().qps[&qpn].user_index;
        for id in 0..3 {
            srq.post(id, &[SGE]).unwrap();
        }
        let full = Err(PostError::QueueFull { limit: 3 });
        let completion = cqe(user, qpn, 2, 0, 0);
        drop(qp);
        rig.cqe(&fake, other.cqn().number(), completion);
        assert_eq!(poll(&mut other), None);
        assert_eq!(other.garbage_completions(), 1);
        assert_eq!(srq.post(3, &[SGE]), full);
        // It lay in the QP's own CQ when that let go.
        rig.cqe(&fake, cq.cqn().number(), completion);
        assert_eq!((poll(&mut cq), cq.garbage_completions()), (None, 0));
        srq.post(3, &[SGE]).unwrap();
        rig.cqe(&fake, cq.cqn().number(), cqe(user, qpn, 2, 1, 0));
        assert_eq!((poll(&mut cq), cq.garbage_completions()), (None, 1));
        assert_eq!(srq.post(4, &[SGE]), full);
    });
}

#[test]
fn errors_and_flushes() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 16, false);
        let cqn = cq.cqn().number();
        for id in 0..3 {
            qp.send_queue()
                .batch()
                .send(id, SendFlags::empty(), SGE)
                .unwrap();
            qp.recv_queue().post(10 + id, &[SGE]).unwrap();
        }
        let mut error = cqe(rig.lock().qps[&0x100].user_index, 0x100, 13, 0, 0x0a);
        error[0x36] = 0x88;
        error[0x37] = 0x15;
        rig.cqe(&fake, cqn, error);
        let wc = poll(&mut cq).unwrap();
        assert_eq!(
            (wc.wr_id, wc.status, wc.vendor_err, wc.syndrome),
            (0, WcStatus::RetryExcErr, 0x88, 0x15)
        );
        for (op, counter, id) in [
            (13, 1, 1),
            (13, 2, 2),
            (14, 0, 10),
            (14, 1, 11),
            (14, 2, 12),
        ] {
            let mut flush = cqe(rig.lock().qps[&0x100].user_index, 0x100, op, counter, 0x0a);
            flush[0x37] = 5;
            rig.cqe(&fake, cqn, flush);
            let wc = poll(&mut cq).unwrap();
            assert_eq!(
                (wc.wr_id, wc.status, wc.qp_num),
                (id, WcStatus::WrFlushErr, Qpn::from_low_bits(0x100))
            );
        }
        assert_eq!(cq.garbage_completions(), 0);
    });
}

#[test]
fn arming_and_events() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 0, 1, 0), 16, true);
        let cqn = cq.cqn().number();
        doorbells(&fake);
        cq.arm(false);
        assert_eq!(doorbells(&fake), [(0x20, u64::from(cqn))]);
        assert_eq!(rig.cq_records(&fake, cqn), (0, 0));
        assert!(!cq.take_event());
        qp.send_queue().batch().send(1, SIGNALED, SGE).unwrap();
        rig.complete(&fake, cqn, 0x100, 0, 0, 0x0a);
        fake.event(Event::Completion(Cqn::from_low_bits(cqn)));
        device.poll().unwrap();
        assert!(cq.take_event());
        assert!(!cq.take_event());
        assert!(poll(&mut cq).is_some());
        doorbells(&fake);
        cq.arm(true);
        // Sequence 1, solicited only, consumer index 1.
        assert_eq!(
            doorbells(&fake),
            [(0x20, 0x1100_0001 << 32 | u64::from(cqn))]
        );
        assert_eq!(rig.cq_records(&fake, cqn), (1, 0x1100_0001));
        // An event of a CQ that does not exist is ignored.
        fake.event(Event::Completion(Cqn::from_low_bits(0x7777)));
        device.poll().unwrap();
        assert!(!cq.take_event());
    });
}

#[test]
fn an_overrun_is_an_error_behind_what_came_before() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 0, 1, 0), 3, true);
        let cqn = cq.cqn();
        qp.send_queue().batch().send(1, SIGNALED, SGE).unwrap();
        rig.complete(&fake, cqn.number(), 0x100, 0, 0, 0x0a);
        fake.event(Event::CqError { cqn, syndrome: 1 });
        device.poll().unwrap();
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(1));
        assert_eq!(cq.poll().err(), Some(CqError::Failed { cqn, syndrome: 1 }));
        assert_eq!(
            cq.poll_wcs(&mut [Wc::EMPTY]).err(),
            Some(CqError::Failed { cqn, syndrome: 1 })
        );
    });
}
