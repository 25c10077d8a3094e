//! Extended reliable connections: SRQs of several protection domains behind one connection.

use bareverbs_core::{
    Buffer, CommandError, Cq, CqError, CqInit, CreateQpError, Inline, LKey, Pd, PostError, Qp,
    QpAttr, QpAttrMask, QpInitAttr, QpState, Rc, Remote, SendData, SendFlags, SendOp, SendWr, Sge,
    Srq, SrqAttr, SrqError, Wc, WcFlags, WcOpcode, WcStatus, XrcRecv, XrcSend, Xrcd,
};
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

use crate::lab::{ALL, CAP, End, LENGTHS, Lab, MS, SIGNALED, got, lab, lab_with, ok, pattern};
use crate::seam::Seam;

type Buf<'d> = Buffer<'d, Seam>;

fn sizes(max_wr: u32) -> SrqAttr {
    SrqAttr {
        max_wr,
        max_sge: 2,
        srq_limit: 0,
    }
}

/// On node 0.
pub(crate) type Initiator<'d> = End<'d, XrcSend>;

/// Objects of one of the processes at node 1, in the order in which they have to go.
pub(crate) struct Owner<'d> {
    pub(crate) srq: Srq<'d, Seam>,
    pub(crate) cq: Cq<'d, Seam>,
    pub(crate) buffer: Buf<'d>,
    pd: Pd<'d, Seam>,
}

/// The target of node 1, in its domain.
pub(crate) struct Target<'d> {
    pub(crate) qp: Qp<'d, Seam, XrcRecv>,
    pub(crate) domain: Xrcd<'d, Seam>,
}

pub(crate) fn initiator<'d>(lab: &Lab<'d>) -> Initiator<'d> {
    let end = lab.end::<XrcSend>(0, CAP);
    // It receives nothing.
    let cap = end.qp.cap();
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge), (0, 0));
    end
}

pub(crate) fn owner<'d>(lab: &Lab<'d>, domain: &Xrcd<'d, Seam>, max_wr: u32) -> Owner<'d> {
    let device = lab.sides[1].device;
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(CqInit::new(63)).unwrap();
    let srq = pd.create_xrc_srq(domain, &cq, &mut sizes(max_wr)).unwrap();
    let buffer = pd.alloc_buffer(1 << 16, ALL).unwrap();
    Owner {
        srq,
        cq,
        buffer,
        pd,
    }
}

pub(crate) fn target<'d>(lab: &Lab<'d>) -> Target<'d> {
    let domain = lab.sides[1].device.open_xrcd().unwrap();
    let qp = domain.create_qp().unwrap();
    Target { qp, domain }
}

fn connect<'d>(lab: &Lab<'d>, from: &mut Initiator<'d>, to: &mut Target<'d>) {
    let qpns = (from.qp.qpn(), to.qp.qpn());
    lab.to_rts(&mut from.qp, 0, qpns.1, &|_| {});
    lab.to_rts(&mut to.qp, 1, qpns.0, &|_| {});
}

impl Owner<'_> {
    pub(crate) fn receive(&mut self, wr_id: u64, at: usize, len: usize) {
        let sge = self.buffer.sge(at, len).unwrap();
        self.srq.post(wr_id, &[sge]).unwrap();
    }

    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote {
            addr: self.buffer.addr() + at as u64,
            rkey: self.buffer.rkey(),
        }
    }

    #[track_caller]
    pub(crate) fn assert_holds(&self, at: usize, expected: &[u8]) {
        let mut data = vec![0; expected.len()];
        self.buffer.copy_out(at, &mut data).unwrap();
        assert!(data == expected, "{} bytes at {at}", data.len());
    }
}

/// A receive, of one SRQ, by the one QP.
#[track_caller]
fn arrived(wc: Wc, wr_id: u64, len: usize, target: &Target<'_>) {
    assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
    assert_eq!(wc.byte_len as usize, len);
    assert_eq!(wc.qp_num, target.qp.qpn());
}

#[test]
fn one_connection_reaches_the_queues_of_many() {
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let mut owners = [7, 7, 31].map(|max_wr| owner(lab, &t.domain, max_wr));
        connect(lab, &mut a, &mut t);
        // Round and round each of the rings.
        for (round, len) in (0..70u64).zip(LENGTHS.iter().cycle().copied()) {
            let which = round as usize % 3;
            let o = &mut owners[which];
            o.receive(round, 512, 1 << 15);
            a.buffer.copy_in(0, &pattern(len, round)).unwrap();
            let (sge, srqn) = (a.sge(0, len), o.srq.srqn());
            a.qp.send_queue()
                .batch()
                .send(round, SIGNALED, srqn, sge)
                .unwrap();
            arrived(lab.wait(&mut o.cq), round, len, &t);
            o.assert_holds(512, &pattern(len, round));
            ok(lab.wait(&mut a.cq), round, WcOpcode::Send);
            for other in &mut owners {
                assert!(other.cq.poll().unwrap().is_none());
            }
        }
        for o in &mut owners {
            assert_eq!(o.cq.garbage_completions(), 0);
        }
        assert_eq!(a.cq.garbage_completions(), 0);
    });
}

/// Every operation, by its own method and as a work request.
#[test]
fn operations() {
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let mut o = owner(lab, &t.domain, 31);
        connect(lab, &mut a, &mut t);
        let srqn = o.srq.srqn();
        let word = |buffer: &Buf<'_>, at| {
            let mut bytes = [0; 8];
            buffer.copy_out(at, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        for typed in [true, false] {
            let post = |a: &mut Initiator<'_>, wr_id, op, data: SendData<'_>| {
                let wr = SendWr {
                    wr_id,
                    op,
                    flags: SIGNALED,
                    data,
                };
                let queue = a.qp.send_queue();
                let SendData::Sges(&[sge]) = data else {
                    return queue.post_xrc(srqn, &wr);
                };
                if !typed {
                    return queue.post_xrc(srqn, &wr);
                }
                let mut batch = queue.batch();
                let flags = SIGNALED;
                match op {
                    SendOp::Send => batch.send(wr_id, flags, srqn, sge),
                    SendOp::SendImm(imm) => batch.send_imm(wr_id, flags, srqn, imm, sge),
                    SendOp::SendInv(key) => batch.send_inv(wr_id, flags, srqn, key, sge),
                    SendOp::Write(to) => batch.write(wr_id, flags, srqn, to, sge),
                    SendOp::WriteImm(to, imm) => batch.write_imm(wr_id, flags, srqn, to, imm, sge),
                    SendOp::Read(from) => batch.read(wr_id, flags, srqn, from, &[sge]),
                    SendOp::CompareSwap {
                        remote,
                        compare,
                        swap,
                    } => batch.compare_swap(wr_id, flags, srqn, remote, compare, swap, sge),
                    SendOp::FetchAdd { remote, add } => {
                        batch.fetch_add(wr_id, flags, srqn, remote, add, sge)
                    }
                    _ => unreachable!("not for connections"),
                }
            };
            a.buffer.copy_in(0, &pattern(3000, 1)).unwrap();
            let local = [a.sge(0, 3000)];

            o.receive(1, 0, 4096);
            post(
                &mut a,
                10,
                SendOp::SendImm(0x1234_5678),
                SendData::Sges(&local),
            )
            .unwrap();
            let wc = lab.wait(&mut o.cq);
            arrived(wc, 1, 3000, &t);
            assert_eq!((wc.imm_data, wc.flags), (0x1234_5678, WcFlags::WITH_IMM));
            ok(lab.wait(&mut a.cq), 10, WcOpcode::Send);

            post(
                &mut a,
                11,
                SendOp::Write(o.remote(8192)),
                SendData::Sges(&local),
            )
            .unwrap();
            ok(lab.wait(&mut a.cq), 11, WcOpcode::RdmaWrite);
            o.assert_holds(8192, &pattern(3000, 1));

            o.receive(2, 0, 0);
            let op = SendOp::WriteImm(o.remote(16_384), 9);
            post(&mut a, 12, op, SendData::Sges(&local)).unwrap();
            let wc = got(lab.wait(&mut o.cq), 2, WcOpcode::RecvRdmaWithImm);
            assert_eq!((wc.imm_data, wc.byte_len), (9, 3000));
            ok(lab.wait(&mut a.cq), 12, WcOpcode::RdmaWrite);
            o.assert_holds(16_384, &pattern(3000, 1));

            o.buffer.copy_in(20_000, &pattern(5000, 2)).unwrap();
            let into = [a.sge(30_000, 5000)];
            post(
                &mut a,
                13,
                SendOp::Read(o.remote(20_000)),
                SendData::Sges(&into),
            )
            .unwrap();
            ok(lab.wait(&mut a.cq), 13, WcOpcode::RdmaRead);
            let mut got = vec![0; 5000];
            a.buffer.copy_out(30_000, &mut got).unwrap();
            assert!(got == pattern(5000, 2));

            o.buffer.copy_in(64, &100_u64.to_ne_bytes()).unwrap();
            let result = [a.sge(40_000, 8)];
            let remote = o.remote(64);
            post(
                &mut a,
                14,
                SendOp::FetchAdd { remote, add: 5 },
                SendData::Sges(&result),
            )
            .unwrap();
            ok(lab.wait(&mut a.cq), 14, WcOpcode::FetchAdd);
            assert_eq!((word(&a.buffer, 40_000), word(&o.buffer, 64)), (100, 105));
            let op = SendOp::CompareSwap {
                remote,
                compare: 105,
                swap: 42,
            };
            post(&mut a, 15, op, SendData::Sges(&result)).unwrap();
            ok(lab.wait(&mut a.cq), 15, WcOpcode::CompSwap);
            assert_eq!((word(&a.buffer, 40_000), word(&o.buffer, 64)), (105, 42));

            o.receive(3, 100, 64);
            post(&mut a, 16, SendOp::Send, SendData::Inline(b"short")).unwrap();
            arrived(lab.wait(&mut o.cq), 3, 5, &t);
            ok(lab.wait(&mut a.cq), 16, WcOpcode::Send);
            o.assert_holds(100, b"short");
            // Nothing can be fetched into the work queue.
            let read = post(&mut a, 17, SendOp::Read(remote), SendData::Inline(b""));
            assert_eq!(read, Err(PostError::Unsupported));
        }
    });
}

/// Lists share a doorbell, gathered pieces become one message, and the largest WQE crosses the end of the ring.
#[test]
fn lists_and_pieces() {
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let mut o = owner(lab, &t.domain, 31);
        connect(lab, &mut a, &mut t);
        let srqn = o.srq.srqn();
        a.buffer.copy_in(0, &pattern(400, 5)).unwrap();
        let long = pattern(CAP.max_inline_data as usize, 6);
        for round in 0..25u64 {
            for n in 0..8 {
                o.receive(n, n as usize * 512, 512);
            }
            let pieces = [0, 1, 2, 3].map(|n| a.sge(n * 100, 100));
            let mut batch = a.qp.send_queue().batch();
            for n in 0..8 {
                let flags = if n == 7 { SIGNALED } else { SendFlags::empty() };
                if (n + round) % 2 == 0 {
                    batch.send(n, flags, srqn, &pieces).unwrap();
                } else {
                    batch.send(n, flags, srqn, Inline(&long)).unwrap();
                }
            }
            drop(batch);
            for n in 0..8 {
                let expected = if (n + round) % 2 == 0 {
                    pattern(400, 5)
                } else {
                    long.clone()
                };
                arrived(lab.wait(&mut o.cq), n, expected.len(), &t);
                o.assert_holds(n as usize * 512, &expected);
            }
            ok(lab.wait(&mut a.cq), 7, WcOpcode::Send);
        }
    });
}

/// Keys and queues outside the protection domain, or the XRC domain, are refused at the target.
#[test]
fn domains_are_borders() {
    for case in 0..3 {
        lab(|lab| {
            let mut a = initiator(lab);
            let mut t = target(lab);
            let elsewhere = lab.sides[1].device.open_xrcd().unwrap();
            let mut o = owner(lab, &t.domain, 7);
            let other_domain = owner(lab, &elsewhere, 7);
            let same_domain = owner(lab, &t.domain, 7);
            connect(lab, &mut a, &mut t);
            o.receive(1, 0, 64);
            let mut batch = a.qp.send_queue().batch();
            let (srqn, strange) = (o.srq.srqn(), other_domain.srq.srqn());
            match case {
                0 => batch.send(1, SIGNALED, strange, Inline(b"hello")),
                // The key of one process, under the name of another.
                1 => batch.write(1, SIGNALED, srqn, same_domain.remote(0), Inline(b"hello")),
                _ => batch.write(1, SIGNALED, srqn, other_domain.remote(0), Inline(b"hello")),
            }
            .unwrap();
            batch.send(2, SIGNALED, srqn, Inline(b"hello")).unwrap();
            drop(batch);
            for (id, status) in [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)] {
                let wc = lab.wait(&mut a.cq);
                assert_eq!((wc.wr_id, wc.status), (id, status), "case {case}");
            }
            assert!(o.cq.poll().unwrap().is_none());
            assert_eq!(t.qp.query().unwrap().attr.qp_state, QpState::Err);
            // From the beginning, with the same queues.
            a.qp.modify(&QpAttr::DEFAULT, QpAttrMask::STATE).unwrap();
            t.qp.modify(&QpAttr::DEFAULT, QpAttrMask::STATE).unwrap();
            connect(lab, &mut a, &mut t);
            let queue = a.qp.send_queue();
            queue
                .batch()
                .send(3, SIGNALED, srqn, Inline(b"again"))
                .unwrap();
            arrived(lab.wait(&mut o.cq), 1, 5, &t);
            ok(lab.wait(&mut a.cq), 3, WcOpcode::Send);
            drop((o, other_domain, same_domain));
            elsewhere.close().map_err(|(_, error)| error).unwrap();
        });
    }
}

/// Completions of a destroyed SRQ in a CQ are never taken for the next SRQ's, and no object is destroyed before its
/// users.
#[test]
fn queues_go_in_order() {
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let Owner {
            mut srq,
            mut cq,
            buffer,
            pd,
        } = owner(lab, &t.domain, 7);
        connect(lab, &mut a, &mut t);
        let mut old = srq.srqn();
        for round in 0..10u64 {
            for slot in 0..4u64 {
                let sge = buffer.sge(slot as usize * 64, 64).unwrap();
                srq.post(round << 8 | slot, &[sge]).unwrap();
            }
            for id in 0..4 {
                let queue = a.qp.send_queue();
                queue
                    .batch()
                    .send(id, SIGNALED, old, Inline(&[round as u8; 9]))
                    .unwrap();
                ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            }
            // Of four completions one is taken.
            arrived(lab.wait(&mut cq), round << 8, 9, &t);
            let Err((again, CqError::Busy { users: 1 })) = cq.destroy() else {
                panic!("the SRQ completes there");
            };
            cq = again;
            srq.destroy().map_err(|(_, error)| error).unwrap();
            srq = pd.create_xrc_srq(&t.domain, &cq, &mut sizes(7)).unwrap();
            assert_ne!(srq.srqn(), old);
            old = srq.srqn();
            assert!(cq.poll().unwrap().is_none(), "they went with it");
            assert_eq!(cq.garbage_completions(), 0);
        }
        // Slots are freed without polling, once a caller allocates one.
        for _ in 0..40 {
            drop(srq);
            srq = pd.create_xrc_srq(&t.domain, &cq, &mut sizes(7)).unwrap();
        }
        // A target that is gone leaves what came through it.
        let sge = buffer.sge(0, 64).unwrap();
        srq.post(77, &[sge]).unwrap();
        let queue = a.qp.send_queue();
        queue
            .batch()
            .send(1, SIGNALED, srq.srqn(), Inline(b"last"))
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::Send);
        let (domain, error) = t.domain.close().unwrap_err();
        let _: CommandError = error;
        let qpn = t.qp.qpn();
        t.qp.destroy().map_err(|(_, error)| error).unwrap();
        let (domain, _) = domain.close().unwrap_err();
        let wc = got(lab.wait(&mut cq), 77, WcOpcode::Recv);
        assert_eq!(wc.qp_num, qpn);
        srq.destroy().map_err(|(_, error)| error).unwrap();
        domain.close().map_err(|(_, error)| error).unwrap();
        cq.destroy().map_err(|(_, error)| error).unwrap();
        drop(buffer);
        pd.dealloc().map_err(|(_, error)| error).unwrap();
    });
}

/// The default domain is one for all its users, and goes with the last of them.
#[test]
fn the_default_domain_is_shared() {
    lab(|lab| {
        let device = lab.sides[1].device;
        let domains = || lab.world.with_model(1, |model| model.objects().xrcds);
        let first = device.default_xrcd().unwrap();
        let second = device.default_xrcd().unwrap();
        assert_eq!((first.xrcdn(), domains()), (second.xrcdn(), 1));
        first.close().map_err(|(_, error)| error).unwrap();
        let qp = second.create_qp().unwrap();
        let (second, _) = second.close().unwrap_err();
        drop(qp);
        assert_eq!(domains(), 1);
        drop(second);
        assert_eq!(domains(), 0);
        drop(device.default_xrcd().unwrap());
        assert_eq!(domains(), 0);
    });
}

#[test]
fn limits() {
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let mut o = owner(lab, &t.domain, 7);
        connect(lab, &mut a, &mut t);
        for slot in 0..7 {
            o.receive(slot, slot as usize * 64, 64);
        }
        let sge = o.buffer.sge(0, 64).unwrap();
        assert_eq!(
            o.srq.post(9, &[sge]),
            Err(PostError::QueueFull { limit: 7 })
        );
        o.srq.arm_limit(6).unwrap();
        assert_eq!(o.srq.query().unwrap().srq_limit, 6);
        for id in 0..2 {
            let (queue, srqn) = (a.qp.send_queue(), o.srq.srqn());
            queue
                .batch()
                .send(id, SIGNALED, srqn, Inline(b"x"))
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
        }
        lab.pause(MS);
        assert!(o.srq.take_limit_event());
        assert!(!o.srq.take_limit_event());
    });
}

/// Capabilities that are missing are named.
#[test]
fn refusals() {
    let without = |general: bool| {
        lab_with(
            |mut card| {
                if general {
                    card.general.set_xrc(false);
                    card.general_max.set_xrc(false);
                } else {
                    card.supported_issi = 0b01;
                }
                card
            },
            |lab| {
                let side = &lab.sides[0];
                assert!(!side.device.capabilities().has_xrc());
                let cq = side.device.create_cq(CqInit::new(7)).unwrap();
                let mut init = QpInitAttr {
                    send_cq: &cq,
                    recv_cq: &cq,
                    srq: None,
                    cap: CAP,
                    sq_sig_all: false,
                };
                let refused = side.pd.create_qp::<XrcSend>(&mut init).unwrap_err();
                assert_eq!(refused, CreateQpError::NoXrc);
                if let Ok(domain) = side.device.open_xrcd() {
                    let refused = domain.create_qp().unwrap_err();
                    assert_eq!(refused, CreateQpError::NoXrc);
                    let refused = side.pd.create_xrc_srq(&domain, &cq, &mut sizes(1));
                    assert_eq!(refused.unwrap_err(), SrqError::NoXrc);
                }
            },
        );
    };
    without(true);
    without(false);
    lab(|lab| {
        let mut a = initiator(lab);
        let mut t = target(lab);
        let o = owner(lab, &t.domain, 7);
        let side = &lab.sides[1];
        let mut init = QpInitAttr {
            send_cq: &o.cq,
            recv_cq: &o.cq,
            srq: Some(&o.srq),
            cap: CAP,
            sq_sig_all: false,
        };
        let refused = side.pd.create_qp::<Rc>(&mut init).unwrap_err();
        assert_eq!(refused, CreateQpError::XrcSrq);
        let refused = side.pd.create_qp::<XrcSend>(&mut init).unwrap_err();
        let kind = bareverbs_core::QpKind::XrcSend;
        assert_eq!(refused, CreateQpError::NoSrq { kind });
        let other = &lab.sides[0].pd;
        let refused = other.create_xrc_srq(&t.domain, &o.cq, &mut sizes(1));
        assert_eq!(refused.unwrap_err(), SrqError::OtherDevice);
        let refused = side.pd.create_xrc_srq(&t.domain, &a.cq, &mut sizes(1));
        assert_eq!(refused.unwrap_err(), SrqError::OtherDevice);

        connect(lab, &mut a, &mut t);
        // The ends have no receives, and the target nothing at all.
        let sge = a.sge(0, 64);
        assert_eq!(
            a.qp.recv_queue().post(1, &[sge]),
            Err(PostError::WrongState)
        );
        assert_eq!(
            t.qp.recv_queue().post(1, &[sge]),
            Err(PostError::WrongState)
        );
        let wr = SendWr {
            wr_id: 1,
            op: SendOp::Send,
            flags: SIGNALED,
            data: SendData::Inline(b"to whom?"),
        };
        assert_eq!(a.qp.send_queue().post(&wr), Err(PostError::Unsupported));
        assert_eq!(t.qp.send_queue().post(&wr), Err(PostError::Unsupported));
        let five = [Sge {
            lkey: LKey(0),
            ..sge
        }; 5];
        let srqn = o.srq.srqn();
        let too_many = a.qp.send_queue().batch().send(1, SIGNALED, srqn, &five);
        assert!(matches!(
            too_many,
            Err(PostError::TooManySges { given: 5, .. })
        ));
        // What an initiator does not take on its way.
        assert_eq!(t.qp.cap(), bareverbs_core::QpCap::default());
    });
}

/// Each command for all these objects fails once: a typed error, and nothing is left but what the device keeps.
#[test]
fn every_command_may_fail() {
    let create_and_destroy = |lab: &Lab<'_>| -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let side = &lab.sides[0];
        let domain = side.device.open_xrcd().map_err(|e| text(&e))?;
        let cq = side
            .device
            .create_cq(CqInit::new(7))
            .map_err(|e| text(&e))?;
        let srq = side
            .pd
            .create_xrc_srq(&domain, &cq, &mut sizes(3))
            .map_err(|e| text(&e))?;
        let target = domain.create_qp().map_err(|e| text(&e))?;
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: CAP,
            sq_sig_all: false,
        };
        let initiator = side
            .pd
            .create_qp::<XrcSend>(&mut init)
            .map_err(|e| text(&e))?;
        initiator.destroy().map_err(|(_, e)| text(&e))?;
        target.destroy().map_err(|(_, e)| text(&e))?;
        srq.destroy().map_err(|(_, e)| text(&e))?;
        cq.destroy().map_err(|(_, e)| text(&e))?;
        domain.close().map_err(|(_, e)| text(&e))
    };
    let mut used = 0;
    lab(|lab| {
        let before = lab.sides[0].device.commands_executed();
        create_and_destroy(lab).unwrap();
        used = lab.sides[0].device.commands_executed() - before;
    });
    println!("{used} commands");
    let mut refused = 0;
    for nth in 0..used as u32 {
        lab(|lab| {
            lab.world.with_model(0, |model| {
                model.faults_mut().commands.push(CommandRule::nth(
                    nth,
                    CommandFault::Fail {
                        status: Status::InternalError,
                        syndrome: 0xabc,
                    },
                ));
            });
            // A refused command was not carried out. What a handle destroys is tried again when it is dropped; an
            // object without a handle stays with the device until it is closed.
            refused += u32::from(create_and_destroy(lab).is_err());
            lab.world
                .with_model(0, |model| model.faults_mut().commands.clear());
            create_and_destroy(lab).unwrap_or_else(|error| panic!("command {nth}: {error}"));
        });
    }
    assert!(refused > 9, "{refused}");
}
