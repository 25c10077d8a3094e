//! Capacities of send and receive queues, and the doorbells that they ring.

use bareverbs_core::{
    BadWr, LKey, PostError, Rc, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Srqn, WcOpcode,
    XrcSend,
};

use crate::rig::{cap, doorbells, pair};
use crate::{REMOTE, SGE, SIGNALED, poll, words};

#[test]
fn a_list_that_fails_rings_only_what_is_whole() {
    with_device!(|fake, rig, device, pd| {
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(8, 0, 1, 0), 8, false);
        let good = SendWr {
            wr_id: 1,
            op: SendOp::Send,
            flags: SIGNALED,
            data: SendData::Sges(&[SGE]),
        };
        let bad = SendWr {
            data: SendData::Sges(&[SGE, SGE]),
            ..good
        };
        let error = qp.send_queue().post_list(&[good, good, bad, good]);
        assert_eq!(
            error,
            Err(BadWr {
                index: 2,
                error: PostError::TooManySges { given: 2, limit: 1 }
            })
        );
        // The second one's control segment, and the counter behind it.
        assert_eq!(doorbells(&fake), [(0x800, 0x0000_010a_0001_0002)]);
        assert_eq!(rig.records(&fake, 0x100).1, 2);
        let error = qp.send_queue().post_list(&[bad, good]);
        assert_eq!(error.map_err(|bad| bad.index), Err(0));
        assert_eq!(doorbells(&fake), [], "nothing was posted");
        assert_eq!(rig.records(&fake, 0x100).1, 2);
        let huge = SendWr {
            data: SendData::Sges(&[Sge::new(0, 1 << 31, LKey(0))]),
            ..good
        };
        assert_eq!(
            qp.send_queue().post(&huge),
            Err(PostError::SgeTooLong { length: 1 << 31 })
        );
        qp.send_queue().post_list(&[good, good]).expect("posted");
        assert_eq!(
            doorbells(&fake),
            [(0x800, 0x0000_030a_0001_0002)],
            "on an uncached page always the same register"
        );
    });
}

/// Linux's `MLX5_MAX_SGE_RD`, (512 - 16 - 16) / 16; one less where the WQE names an SRQ (`get_send_sge` of mlx5_ib).
#[test]
fn reads_have_fewer_entries_than_their_queue() {
    with_device!(|fake, _rig, device, pd| {
        assert_eq!(device.capabilities().max_sge_rd(), 30);
        let sges = [SGE; 32];
        let wr = |op, entries| SendWr {
            wr_id: 1,
            op,
            flags: SIGNALED,
            data: SendData::Sges(&sges[..entries]),
        };
        let refused = |limit: u16| {
            Err(PostError::TooManySges {
                given: u32::from(limit) + 1,
                limit,
            })
        };
        let (_cq, mut rc) = pair::<Rc>(&device, &pd, cap(8, 0, 32, 0), 8, false);
        let queue = rc.send_queue();
        queue.post(&wr(SendOp::Write(REMOTE), 32)).unwrap();
        queue.post(&wr(SendOp::Read(REMOTE), 30)).unwrap();
        let posted = doorbells(&fake);
        assert_eq!(posted.len(), 2);
        assert_eq!(posted[1].1 & 0x3f, 32, "units of 16 bytes");
        assert_eq!(queue.post(&wr(SendOp::Read(REMOTE), 31)), refused(30));
        let read = queue.batch().read(1, SIGNALED, REMOTE, &sges[..31]);
        assert_eq!(read, refused(30));
        for (entries, posted) in [(31, refused(30)), (30, Ok(()))] {
            let mut open = queue.open();
            open.read(1, SIGNALED, REMOTE);
            open.set_sge_list(&sges[..entries]);
            assert_eq!(open.complete(), posted);
        }
        let mut open = queue.open();
        open.write(1, SIGNALED, REMOTE);
        open.set_sge_list(&sges);
        assert_eq!(open.complete(), Ok(()));
        let (_cq, mut xrc) = pair::<XrcSend>(&device, &pd, cap(8, 0, 32, 0), 8, false);
        let mut batch = xrc.send_queue().batch();
        let srq = Srqn::from_low_bits(7);
        assert_eq!(
            batch.push_to(srq, &wr(SendOp::Read(REMOTE), 30)),
            refused(29)
        );
        batch.push_to(srq, &wr(SendOp::Read(REMOTE), 29)).unwrap();
        batch.push_to(srq, &wr(SendOp::Write(REMOTE), 32)).unwrap();
    });
}

#[test]
fn a_full_queue_and_unsignaled_work() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(5, 0, 1, 0), 16, false);
        let limit = qp.cap().max_send_wr;
        assert_eq!(limit, 8);
        for round in 0..20u16 {
            for n in 0..limit {
                assert_eq!(qp.send_queue().free(), limit - n);
                let last = n + 1 == limit;
                let flags = if last { SIGNALED } else { SendFlags::empty() };
                qp.send_queue()
                    .batch()
                    .send(u64::from(round) << 8 | u64::from(n), flags, SGE)
                    .expect("queue space");
            }
            let full = Err(PostError::QueueFull { limit });
            assert_eq!(qp.send_queue().batch().send(0, SIGNALED, SGE), full);
            // One completion, of the last one, frees all.
            let counter = round.wrapping_mul(8).wrapping_add(7);
            rig.complete(&fake, cq.cqn().number(), 0x100, 0, counter, 0x0a);
            assert_eq!(
                poll(&mut cq).map(|wc| wc.wr_id),
                Some(u64::from(round) << 8 | 7)
            );
        }
        assert_eq!(cq.garbage_completions(), 0);
    });
}

#[test]
fn queues_open_with_the_state() {
    with_device!(|fake, rig, device, pd| {
        use bareverbs_core::{CqInit, QpAttr, QpAttrMask, QpInitAttr, QpState};
        let cq = device.create_cq(CqInit::new(4)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: cap(4, 4, 1, 0),
            sq_sig_all: true,
        };
        let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
        let mut attempt = |state: QpState, sends: bool, receives: bool| {
            if state != QpState::Reset {
                let row =
                    bareverbs_core::qp::transition(bareverbs_core::QpKind::Rc, qp.state(), state)
                        .unwrap();
                let mut attr = QpAttr {
                    qp_state: state,
                    ..QpAttr::DEFAULT
                };
                attr.ah_attr.dmac = [2; 6];
                qp.modify(&attr, row.required | QpAttrMask::STATE).unwrap();
            }
            let sent = qp.send_queue().batch().send(0, SendFlags::empty(), SGE);
            assert_eq!(sent.is_ok(), sends, "{state}");
            let received = qp.recv_queue().post(0, &[SGE]);
            assert_eq!(received.is_ok(), receives, "{state}");
            if !sends {
                assert_eq!(sent, Err(PostError::WrongState));
            }
            if !receives {
                assert_eq!(received, Err(PostError::WrongState));
            }
        };
        attempt(QpState::Reset, false, false);
        attempt(QpState::Init, false, true);
        attempt(QpState::Rtr, false, true);
        attempt(QpState::Rts, true, true);
        attempt(QpState::Err, true, true);
        // `sq_sig_all` shows in the control segment.
        assert_eq!(words(&rig.send_wqe(&fake, 0x100, 0, 16))[2], 8);
    });
}

#[test]
fn receives() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(0, 3, 2, 0), 16, false);
        assert_eq!((qp.cap().max_recv_wr, qp.cap().max_recv_sge), (4, 2));
        assert_eq!(
            qp.send_queue().batch().send(0, SIGNALED, SGE),
            Err(PostError::WrongState),
            "no send queue"
        );
        let ring = rig.lock().qps[&0x100].ring;
        let wqe = |index: u64| words(&fake.lock().dma_read(ring + index * 32, 32));
        let second = Sge::new(0x55, 7, LKey(9));
        let empty = Sge::new(1, 0, LKey(3));
        doorbells(&fake);
        qp.recv_queue()
            .post_list(&[
                RecvWr {
                    wr_id: 10,
                    sges: &[SGE, second],
                },
                RecvWr {
                    wr_id: 11,
                    sges: &[empty, second],
                },
                RecvWr {
                    wr_id: 12,
                    sges: &[],
                },
            ])
            .unwrap();
        assert_eq!(wqe(0), [0x1000, 0x0011_2201, 0x7f00, 0x1000, 7, 9, 0, 0x55]);
        assert_eq!(wqe(1), [7, 9, 0, 0x55, 0, 0x100, 0, 0]);
        assert_eq!(wqe(2)[..4], [0, 0x100, 0, 0]);
        assert_eq!(rig.records(&fake, 0x100).0, 3);
        assert_eq!(doorbells(&fake), [], "receives ring nothing");
        qp.recv_queue().post(13, &[SGE]).unwrap();
        assert_eq!(
            qp.recv_queue().post(14, &[SGE]),
            Err(PostError::QueueFull { limit: 4 })
        );
        for (counter, op, opcode) in [
            (0, 2, WcOpcode::Recv),
            (1, 3, WcOpcode::Recv),
            (2, 4, WcOpcode::Recv),
            (3, 1, WcOpcode::RecvRdmaWithImm),
        ] {
            rig.complete(&fake, cq.cqn().number(), 0x100, op, counter, 0);
            let wc = poll(&mut cq).expect("completion");
            assert_eq!((wc.wr_id, wc.opcode), (10 + u64::from(counter), opcode));
        }
        let error = qp.recv_queue().post(0, &[SGE, SGE, SGE]);
        assert_eq!(error, Err(PostError::TooManySges { given: 3, limit: 2 }));
        // Many rounds, past the 16 bits of the record.
        for n in 4..70_000u32 {
            qp.recv_queue().post(u64::from(n), &[SGE]).unwrap();
            rig.complete(&fake, cq.cqn().number(), 0x100, 2, n as u16, 0);
            assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(u64::from(n)));
        }
        assert_eq!(rig.records(&fake, 0x100).0, 70_000 & 0xffff);
    });
}
