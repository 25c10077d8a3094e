//! Raw packet QPs: drawn frames in every form of work request, beside messages of another QP in the same CQs; states, errors,
//! and what is refused.

use bareverbs_core::qp::{self, CapError};
use bareverbs_core::{
    CqInit, CreateQpError, EthernetDomain, FlowAttr, FlowFlags, FlowRule, FlowSlot, FlowSpec,
    FlowTable, FlowType, Inline, ModifyError, PostError, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpKind, QpState, RawPacketError, RawPacketQp, Rc, SendData, SendFlags, SendOp, SendWr, Sge,
    SrqAttr, Wc, WcFlags, WcOpcode, WcStatus,
};

use crate::lab::{CAP, End, Lab, MS, SIGNALED, got, lab, ok};
use crate::packets::Packet;
use crate::seam::Seam;
use crate::support::{Random, frame, padded};

pub(crate) type RawQp<'d> = RawPacketQp<'d, Seam>;
pub(crate) type Domain<'d> = EthernetDomain<'d, Seam>;

/// Room for rules at five priorities, of which three are for normal rules.
pub(crate) const SLOTS: [FlowSlot; 50] = [FlowSlot::new(); 50];

pub(crate) fn domain<'d>(lab: &Lab<'d>, node: usize) -> Domain<'d> {
    let device = lab.sides[node].device;
    device.alloc_ethernet_domain().expect("domain")
}

pub(crate) fn attr(qp_state: QpState) -> QpAttr {
    QpAttr {
        qp_state,
        ..QpAttr::DEFAULT
    }
}

/// A raw packet QP in RTS on the CQ of another end.
fn raw<'d>(lab: &Lab<'d>, domain: &Domain<'d>, end: &End<'d, Rc>, node: usize) -> RawQp<'d> {
    let mut init = QpInitAttr {
        send_cq: &end.cq,
        recv_cq: &end.cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let pd = &lab.sides[node].pd;
    let mut qp = domain.create_raw_packet_qp(pd, &mut init).expect("QP");
    assert!(init.cap.max_send_wr >= CAP.max_send_wr && init.cap.max_recv_wr >= CAP.max_recv_wr);
    assert!(init.cap.max_inline_data >= CAP.max_inline_data);
    assert_eq!(qp.state(), QpState::Reset);
    qp.bring_to_rts().expect("RTS");
    assert_eq!(qp.query().unwrap().attr.qp_state, QpState::Rts);
    qp
}

pub(crate) fn to_mac(
    flows: &mut FlowTable<'_, '_, Seam>,
    qp: &RawQp<'_>,
    mac: [u8; 6],
) -> FlowRule {
    let specs = [FlowSpec::to_mac(mac)];
    let attr = FlowAttr::normal(&specs);
    flows
        .create_flow(qp.target().unwrap(), &attr)
        .expect("flow")
}

/// Posts a frame in one of the forms that there are. Its bytes go to the end's buffer first, unless they are inline.
fn post(
    random: &mut Random,
    qp: &mut RawQp<'_>,
    end: &End<'_, Rc>,
    wr_id: u64,
    frame: &[u8],
    flags: SendFlags,
) {
    let at = 4096 * (wr_id as usize % 8);
    end.buffer.copy_in(at, frame).unwrap();
    let inline = frame.len() <= CAP.max_inline_data as usize;
    // Cut into up to four pieces, of which some are empty.
    let mut cuts = [0, frame.len(), 0, 0, 0];
    for cut in &mut cuts[2..] {
        *cut = random.below(frame.len() + 1);
    }
    cuts.sort_unstable();
    let sges: Vec<Sge> = cuts
        .windows(2)
        .map(|cut| {
            Sge::new(
                end.buffer.addr() + (at + cut[0]) as u64,
                (cut[1] - cut[0]) as u32,
                end.buffer.lkey(),
            )
        })
        .collect();
    let sq = qp.send_queue();
    let posted = match random.below(5) {
        0 if inline => sq.batch().send_packet(wr_id, flags, Inline(frame)),
        1 if inline => sq.post(&SendWr {
            wr_id,
            op: SendOp::Send,
            flags,
            data: SendData::Inline(frame),
        }),
        2 => {
            let headers = random.below(frame.len().min(30));
            let (headers, rest) = frame.split_at(headers);
            let rest_at = end.sge(at + headers.len(), rest.len());
            let data = match inline && random.below(2) == 0 {
                true => SendData::Inline(rest),
                false => SendData::Sges(&[rest_at]),
            };
            sq.batch().send_packet_with(wr_id, flags, headers, data)
        }
        3 => sq.batch().send_packet(wr_id, flags, &sges[..]),
        _ => sq
            .batch()
            .send_packet(wr_id, flags, end.sge(at, frame.len())),
    };
    posted.expect("posted");
}

/// Frames and messages through the same CQs, in a drawn order: each completion says which QP it is of, and the frames are as the
/// test drew them.
#[test]
fn frames_beside_messages() {
    const SEED: u64 = 0x4a77;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let [mut a, mut b] = lab.pair::<Rc>();
        let domains = [0, 1].map(|node| domain(lab, node));
        let mut from = raw(lab, &domains[0], &a, 0);
        let mut to = raw(lab, &domains[1], &b, 1);
        let mut slots = SLOTS;
        let mut flows = domains[1].create_flow_table(&mut slots, 5).unwrap();
        let rule = to_mac(&mut flows, &to, domains[1].mac());
        // A mark that is the number of the other QP in this CQ.
        let qpn = b.qp.qpn().number();
        let tagged = [
            FlowSpec::to_mac([0x33, 0x33, 0, 0, 0, 9]),
            FlowSpec::ActionTag(qpn),
        ];
        let tagged = flows
            .create_flow(to.target().unwrap(), &FlowAttr::normal(&tagged))
            .unwrap();
        let (mut sums, mut strips, mut tags) = (0, false, 0);
        for step in 0..400_u64 {
            if random.below(10) == 0 {
                strips = random.below(2) == 0;
                // While frames can come, or for when they come again.
                let again = random.below(3) == 0;
                if again {
                    to.modify(&attr(QpState::Reset), QpAttrMask::STATE).unwrap();
                }
                to.set_vlan_strip(strips).unwrap();
                if again {
                    to.bring_to_rts().unwrap();
                }
            }
            if random.below(3) == 0 {
                let len = 1 + random.below(500);
                a.fill(40_000, len, step);
                b.receive(step, 40_000, 500);
                let sge = a.sge(40_000, len);
                a.qp.send_queue().batch().send(step, SIGNALED, sge).unwrap();
                let wc = got(lab.wait(&mut b.cq), step, WcOpcode::Recv);
                assert_eq!((wc.qp_num, wc.byte_len), (b.qp.qpn(), len as u32));
                assert_eq!(wc.flags, WcFlags::empty());
                b.assert_pattern(40_000, len, step);
                let wc = got(lab.wait(&mut a.cq), step, WcOpcode::Send);
                assert_eq!(wc.qp_num, a.qp.qpn());
                continue;
            }
            let special = random.below(4) == 0;
            let mac = match special {
                true => [0x33, 0x33, 0, 0, 0, 9],
                false => domains[1].mac(),
            };
            let mut packet = Packet::draw(&mut random, mac);
            packet.payload = random.below(1300);
            let wanted = packet.frame(lab.sides[0].mac);
            let sum = random.below(2) == 0;
            let flags = match sum {
                true => SIGNALED | SendFlags::IP_CSUM,
                false => SIGNALED,
            };
            // Two pieces, the second one large enough for all frames.
            let first = 14 + random.below(100);
            let sges = [b.sge(4096, first), b.sge(8192, 2048)];
            to.recv_queue().post(step, &sges).unwrap();
            post(&mut random, &mut from, &a, step, &wanted, flags);
            let completion = loop {
                if let Some(found) = b.cq.poll().unwrap() {
                    break (found.to_wc(), found.flow_tag(), found.vlan());
                }
                lab.pause(MS);
            };
            let wc = got(completion.0, step, WcOpcode::Recv);
            assert_eq!(completion.1, if special { qpn } else { 0 });
            assert_eq!(completion.2, packet.vlan.filter(|_| strips));
            assert_eq!(wc.qp_num, to.qpn());
            let mut wanted = padded(wanted);
            if strips && packet.vlan.take().is_some() {
                tags += 1;
                wanted.drain(12..16);
            }
            let mut got = vec![0; wc.byte_len as usize];
            assert_eq!(got.len(), wanted.len(), "step {step}");
            let (head, tail) = got.split_at_mut(first.min(wanted.len()));
            b.buffer.copy_out(4096, head).unwrap();
            b.buffer.copy_out(8192, tail).unwrap();
            // What the sender's card filled in, the receiver's finds right; the rest is as it was drawn.
            if sum {
                sums += 1;
                let right = !packet.v6 && packet.has_ports();
                assert_eq!(wc.flags == WcFlags::IP_CSUM_OK, right, "{packet:?}");
                let headers = 14 + if packet.vlan.is_some() { 4 } else { 0 };
                assert_eq!(got[..headers], wanted[..headers]);
                let behind = headers + if packet.v6 { 40 } else { 20 } + 20;
                assert_eq!(got.get(behind..), wanted.get(behind..), "step {step}");
            } else {
                assert_eq!(got, wanted, "step {step}");
            }
            let wc = crate::lab::got(lab.wait(&mut a.cq), step, WcOpcode::Send);
            assert_eq!(wc.qp_num, from.qpn());
        }
        assert!(sums > 50 && tags > 20, "{sums} {tags}");
        assert_eq!(
            (a.cq.garbage_completions(), b.cq.garbage_completions()),
            (0, 0)
        );
        flows.remove(rule).unwrap();
        flows.remove(tagged).unwrap();
        drop(flows);
        from.destroy().unwrap();
        to.destroy().unwrap();
    });
}

fn one(lab: &Lab<'_>, cq: &mut bareverbs_core::Cq<'_, Seam>) -> Option<Wc> {
    for _ in 0..5 {
        if let Some(completion) = cq.poll().unwrap() {
            return Some(completion.to_wc());
        }
        lab.pause(MS);
    }
    None
}

/// INIT receives, RTS sends; errors flush; RESET starts anew and forgets what was not polled.
#[test]
fn states() {
    lab(|lab| {
        let side = &lab.sides[1];
        let domain = domain(lab, 1);
        let mut cq = side.device.create_cq(CqInit::new(64)).unwrap();
        let buffer = side
            .pd
            .alloc_buffer(8192, bareverbs_core::Access::LOCAL_WRITE)
            .unwrap();
        let sge = |at, len| buffer.sge(at, len).unwrap();
        let mut qp = domain
            .create_raw_packet_qp(&side.pd, &mut QpInitAttr::new(&cq, 8))
            .unwrap();
        let mut slots = SLOTS;
        let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
        let rule = to_mac(&mut flows, &qp, domain.mac());
        let mut peer = lab.queue(0, crate::support::INIT);
        let text = frame(domain.mac(), lab.sides[0].mac, 80, 5);
        for round in 0..3 {
            assert_eq!(
                qp.recv_queue().post(1, &[sge(0, 2000)]),
                Err(PostError::WrongState)
            );
            qp.modify(&attr(QpState::Init), QpAttrMask::STATE | QpAttrMask::PORT)
                .unwrap();
            for wr_id in 0..4 {
                qp.recv_queue().post(wr_id, &[sge(0, 2000)]).unwrap();
            }
            let refused = qp.send_queue().batch().send_packet(9, SIGNALED, sge(0, 60));
            assert_eq!(refused, Err(PostError::WrongState));
            crate::support::send(&mut peer, &text);
            let wc = got(one(lab, &mut cq).unwrap(), 0, WcOpcode::Recv);
            assert_eq!(wc.byte_len, 80);
            qp.modify(&attr(QpState::Rtr), QpAttrMask::STATE).unwrap();
            qp.modify(&attr(QpState::Rts), QpAttrMask::STATE).unwrap();
            // Too long for its buffer: costs the buffer, and the queue goes on.
            let mut long = text.clone();
            long.resize(1500, 1);
            qp.recv_queue().post(5, &[sge(0, 2000)]).unwrap();
            let short = [sge(0, 100)];
            for wr_id in 1..4 {
                crate::support::send(&mut peer, &text);
                ok(one(lab, &mut cq).unwrap(), wr_id, WcOpcode::Recv);
            }
            crate::support::send(&mut peer, &text);
            ok(one(lab, &mut cq).unwrap(), 5, WcOpcode::Recv);
            qp.recv_queue().post(6, &short).unwrap();
            qp.recv_queue().post(7, &[sge(0, 2000)]).unwrap();
            crate::support::send(&mut peer, &long);
            let wc = one(lab, &mut cq).unwrap();
            assert_eq!((wc.wr_id, wc.status), (6, WcStatus::LocLenErr));
            assert_eq!(qp.state(), QpState::Rts);
            crate::support::send(&mut peer, &long);
            ok(one(lab, &mut cq).unwrap(), 7, WcOpcode::Recv);
            if round == 1 {
                // A key that there is not: the send fails, those behind it are flushed.
                let bad = Sge::new(buffer.addr(), 60, bareverbs_core::LKey(0x1234_5600));
                let mut batch = qp.send_queue().batch();
                batch.send_packet(20, SIGNALED, bad).unwrap();
                batch.send_packet(21, SIGNALED, sge(0, 60)).unwrap();
                batch.ring();
                drop(batch);
                let wc = one(lab, &mut cq).unwrap();
                assert_eq!((wc.wr_id, wc.status), (20, WcStatus::LocProtErr));
                assert_eq!((wc.qp_num, qp.state()), (qp.qpn(), QpState::Sqe));
                let wc = one(lab, &mut cq).unwrap();
                assert_eq!((wc.wr_id, wc.status), (21, WcStatus::WrFlushErr));
                assert_eq!(qp.query().unwrap().attr.qp_state, QpState::Sqe);
                let back = qp.modify(&attr(QpState::Rts), QpAttrMask::STATE);
                assert!(matches!(back, Err(ModifyError::Transition(_))), "{back:?}");
            } else {
                qp.recv_queue().post(30, &short).unwrap();
                qp.modify(&attr(QpState::Err), QpAttrMask::STATE).unwrap();
                let wc = one(lab, &mut cq).unwrap();
                assert_eq!((wc.wr_id, wc.status), (30, WcStatus::WrFlushErr));
                // In ERR what is posted is flushed, too.
                qp.send_queue()
                    .batch()
                    .send_packet(31, SIGNALED, sge(0, 60))
                    .unwrap();
                let wc = one(lab, &mut cq).unwrap();
                assert_eq!((wc.wr_id, wc.status), (31, WcStatus::WrFlushErr));
                assert_eq!(qp.query().unwrap().attr.qp_state, QpState::Err);
                // Not polled before RESET: gone.
                qp.send_queue()
                    .batch()
                    .send_packet(32, SIGNALED, sge(0, 60))
                    .unwrap();
                lab.pause(MS);
            }
            qp.modify(&attr(QpState::Reset), QpAttrMask::STATE).unwrap();
            assert_eq!(one(lab, &mut cq), None);
        }
        flows.remove(rule).unwrap();
        assert_eq!(cq.garbage_completions(), 0);
        drop(flows);
        qp.destroy().unwrap();
        cq.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn refusals() {
    lab(|lab| {
        let side = &lab.sides[0];
        let domain = domain(lab, 0);
        let cq = side.device.create_cq(CqInit::new(64)).unwrap();
        let make = |cap: QpCap| {
            let mut init = QpInitAttr::new(&cq, 8);
            init.cap = cap;
            domain.create_raw_packet_qp(&side.pd, &mut init).map(drop)
        };
        let cap = QpInitAttr::new(&cq, 8).cap;
        assert_eq!(make(QpCap::default()), Err(RawPacketError::NoQueue));
        for (field, cap) in [
            (
                "max_send_wr",
                QpCap {
                    max_send_wr: 1 << 20,
                    ..cap
                },
            ),
            (
                "max_send_sge",
                QpCap {
                    max_send_sge: 1 << 10,
                    ..cap
                },
            ),
            (
                "max_recv_wr",
                QpCap {
                    max_recv_wr: 1 << 20,
                    ..cap
                },
            ),
            (
                "max_recv_sge",
                QpCap {
                    max_recv_sge: 1 << 10,
                    ..cap
                },
            ),
        ] {
            match make(cap) {
                Err(RawPacketError::Create(CreateQpError::Cap(CapError {
                    field: named,
                    limit,
                    ..
                }))) => {
                    assert_eq!(named, field);
                    assert!(limit > 0);
                }
                other => panic!("{field}: {other:?}"),
            }
        }
        let srq = side.pd.create_srq(&mut SrqAttr {
            max_wr: 4,
            max_sge: 1,
            srq_limit: 0,
        });
        if let Ok(srq) = srq {
            let mut init = QpInitAttr::new(&cq, 8);
            init.srq = Some(&srq);
            let kind = QpKind::RawPacket;
            let refused = domain.create_raw_packet_qp(&side.pd, &mut init).map(drop);
            assert_eq!(
                refused,
                Err(RawPacketError::Create(CreateQpError::NoSrq { kind }))
            );
        }
        let other = lab.sides[1].device.create_cq(CqInit::new(64)).unwrap();
        let refused = domain
            .create_raw_packet_qp(&side.pd, &mut QpInitAttr::new(&other, 8))
            .map(drop);
        assert_eq!(
            refused,
            Err(RawPacketError::Create(CreateQpError::OtherDevice))
        );
        // One queue only.
        let mut init = QpInitAttr::new(&cq, 8);
        init.cap.max_recv_wr = 0;
        let sender = domain.create_raw_packet_qp(&side.pd, &mut init).unwrap();
        assert_eq!(sender.target(), Err(RawPacketError::NoReceiveQueue));
        init.cap.max_recv_wr = 8;
        init.cap.max_send_wr = 0;
        let mut receiver = domain.create_raw_packet_qp(&side.pd, &mut init).unwrap();
        receiver.bring_to_rts().unwrap();
        let posted = receiver
            .send_queue()
            .batch()
            .send_packet(0, SIGNALED, Inline(&[0; 20]));
        assert_eq!(posted, Err(PostError::WrongState));
        let limited = QpAttrMask::STATE | QpAttrMask::RATE_LIMIT;
        let refused = receiver.modify(&attr(QpState::Rts), limited);
        let attribute = QpAttrMask::RATE_LIMIT;
        assert_eq!(refused, Err(ModifyError::Unsupported { attribute }));
        let mut slots = SLOTS;
        let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
        let target = receiver.target().unwrap();
        for wrong in [
            FlowAttr::of(FlowType::Sniffer),
            FlowAttr {
                flags: FlowFlags::DONT_TRAP,
                ..FlowAttr::normal(&[])
            },
            FlowAttr {
                flags: FlowFlags::EGRESS,
                ..FlowAttr::normal(&[])
            },
            FlowAttr {
                priority: 3,
                ..FlowAttr::normal(&[])
            },
            FlowAttr {
                specs: &[FlowSpec::to_mac([2; 6])],
                ..FlowAttr::of(FlowType::AllDefault)
            },
            FlowAttr::normal(&[FlowSpec::ActionTag(1 << 24)]),
            FlowAttr::normal(&[FlowSpec::to_mac([2; 6]), FlowSpec::to_mac([4; 6])]),
        ] {
            flows.create_flow(target, &wrong).unwrap_err();
        }
        assert_eq!((flows.rules(), flows.max_flow_priority()), (0, Some(2)));
        assert_eq!(
            qp::transition(QpKind::RawPacket, QpState::Sqe, QpState::Rts),
            None
        );
        // Rules hold their target: it stays until the device is closed, so this one goes first.
        drop(flows);
        drop((sender, receiver));
        cq.destroy().map_err(|(_, error)| error).unwrap();
    });
}

/// Half of a QP that another one holds keeps its memory.
#[test]
fn swapped_queues() {
    lab(|lab| {
        let side = &lab.sides[0];
        let domain = domain(lab, 0);
        let cq = side.device.create_cq(CqInit::new(64)).unwrap();
        let make = || {
            let mut qp = domain
                .create_raw_packet_qp(&side.pd, &mut QpInitAttr::new(&cq, 8))
                .unwrap();
            qp.bring_to_rts().unwrap();
            qp
        };
        let (mut a, mut b) = (make(), make());
        core::mem::swap(a.send_queue(), b.send_queue());
        let refused = a.modify(&attr(QpState::Err), QpAttrMask::STATE);
        assert_eq!(refused, Err(ModifyError::QueuesSwapped));
        drop(b);
        a.send_queue()
            .batch()
            .send_packet(1, SIGNALED, Inline(&[0; 20]))
            .unwrap();
        lab.pause(MS);
    });
}
