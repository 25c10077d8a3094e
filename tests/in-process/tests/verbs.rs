//! Verbs over the wire between two cards: every service, what arrives, and what goes wrong.

mod lab;

use bareverbs_core::{Access, AsyncEvent};
use bareverbs_core::{
    AhAttr, CqError, CqInit, Destination, DestroyQpError, Gsi, Inline, LKey, NetworkHeader, QpAttr,
    QpAttrMask, QpCap, QpInitAttr, QpState, Qpn, RKey, Rc, Remote, SendFlags, Sge, SrqAttr, Uc, Ud,
    Wc, WcFlags, WcOpcode, WcStatus,
};
use connectx_model::link::fault::{Action, Rates};
use lab::{ALL, CAP, End, Lab, MS, lab, lab_with, pattern};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const SILENT: SendFlags = SendFlags::empty();

#[track_caller]
fn ok(wc: Wc, wr_id: u64, opcode: WcOpcode) -> Wc {
    assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
    assert_eq!(wc.opcode, opcode, "{wc:?}");
    wc
}

/// Lengths around the edges of packets (path MTU 1024).
const LENGTHS: [usize; 10] = [0, 1, 3, 4, 255, 1023, 1024, 1025, 4096, 20_001];

#[test]
fn rc_sends_of_every_length() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            b.receive(id, 0, 1 << 15);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send(100 + id, SIGNALED, sge)
                .unwrap();
            let wc = ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(
                (wc.byte_len as usize, wc.qp_num, wc.flags),
                (len, b.qp.qpn(), WcFlags::empty())
            );
            ok(lab.wait(&mut a.cq), 100 + id, WcOpcode::Send);
            b.assert_pattern(0, len, id);
        }
    });
}

#[test]
fn rc_scatter_gather_inline_and_immediate() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for offset in [0, 8192, 16384] {
            a.fill(offset, 700, offset as u64);
        }
        let gather = [
            a.sge(0, 700),
            a.sge(8192, 1),
            Sge::new(0, 0, LKey(0)),
            a.sge(16384, 500),
        ];
        let scatter = [b.sge(100, 300), b.sge(1000, 901)];
        b.qp.recv_queue().post(1, &scatter).unwrap();
        a.qp.send_queue()
            .batch()
            .send_imm(2, SIGNALED, 0xdead_beef, &gather[..])
            .unwrap();
        let wc = ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
        assert_eq!(
            (wc.byte_len, wc.flags, wc.imm_data),
            (1201, WcFlags::WITH_IMM, 0xdead_beef)
        );
        ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        let expected = [
            &pattern(700, 0)[..],
            &pattern(1, 8192),
            &pattern(500, 16384),
        ]
        .concat();
        let mut found = vec![0; 1201];
        b.buffer.copy_out(100, &mut found[..300]).unwrap();
        b.buffer.copy_out(1000, &mut found[300..]).unwrap();
        assert_eq!(found, expected);

        // Inline: the source may change at once. Enough of them to go round the ring several times.
        for id in 0..200u64 {
            let len = (id as usize * 7) % 129;
            let mut data = pattern(len, id);
            b.receive(id, 0, 256);
            a.qp.send_queue()
                .batch()
                .send(id, SIGNALED, Inline(&data))
                .unwrap();
            data.fill(0xee);
            assert_eq!(
                ok(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
                len
            );
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            b.assert_pattern(0, len, id);
        }
    });
}

#[test]
fn rc_writes_reads_and_atomics() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            let (sge, back, remote) = (a.sge(0, len), a.sge(30_000, len), b.remote(77));
            let mut batch = a.qp.send_queue().batch();
            batch.write(id, SILENT, remote, sge).unwrap();
            batch.read(1000 + id, SIGNALED, remote, &[back]).unwrap();
            batch.ring();
            drop(batch);
            let wc = ok(lab.wait(&mut a.cq), 1000 + id, WcOpcode::RdmaRead);
            assert_eq!(wc.byte_len as usize, len);
            b.assert_pattern(77, len, id);
            a.assert_pattern(30_000, len, id);
        }
        b.receive(5, 0, 0);
        let (sge, remote) = (a.sge(0, 300), b.remote(0));
        a.qp.send_queue()
            .batch()
            .write_imm(6, SIGNALED, remote, 9, sge)
            .unwrap();
        let wc = ok(lab.wait(&mut b.cq), 5, WcOpcode::RecvRdmaWithImm);
        assert_eq!(
            (wc.imm_data, wc.byte_len, wc.flags),
            (9, 300, WcFlags::WITH_IMM)
        );
        ok(lab.wait(&mut a.cq), 6, WcOpcode::RdmaWrite);

        // Atomics work on integers of the host.
        b.buffer.copy_in(64, &100_u64.to_ne_bytes()).unwrap();
        let word = |end: &End<'_, Rc>, at| {
            let mut bytes = [0; 8];
            end.buffer.copy_out(at, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let (result, remote) = (a.sge(0, 8), b.remote(64));
        a.qp.send_queue()
            .batch()
            .fetch_add(7, SIGNALED, remote, 5, result)
            .unwrap();
        assert_eq!(ok(lab.wait(&mut a.cq), 7, WcOpcode::FetchAdd).byte_len, 8);
        assert_eq!((word(&a, 0), word(&b, 64)), (100, 105));
        for (id, compare, after) in [(8, 1, 105), (9, 105, 42)] {
            a.qp.send_queue()
                .batch()
                .compare_swap(id, SIGNALED, remote, compare, 42, result)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::CompSwap);
            assert_eq!((word(&a, 0), word(&b, 64)), (105, after));
        }
    });
}

/// Unsignaled requests complete with the next signaled one, lists with one doorbell arrive whole and in order.
#[test]
fn lists_and_selective_signalling() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let mut next = 0;
        for round in 0..40u64 {
            let count = 1 + round % 16;
            for n in 0..count {
                b.receive(next + n, n as usize * 64, 64);
                a.fill(n as usize * 64, 64, round << 8 | n);
            }
            let sges: Vec<_> = (0..count).map(|n| a.sge(n as usize * 64, 64)).collect();
            let mut batch = a.qp.send_queue().batch();
            for (n, sge) in (0..count).zip(&sges) {
                let last = n + 1 == count;
                batch
                    .send(next + n, if last { SIGNALED } else { SILENT }, *sge)
                    .unwrap();
            }
            drop(batch);
            for n in 0..count {
                ok(lab.wait(&mut b.cq), next + n, WcOpcode::Recv);
                b.assert_pattern(n as usize * 64, 64, round << 8 | n);
            }
            next += count;
            ok(lab.wait(&mut a.cq), next - 1, WcOpcode::Send);
            assert_eq!(a.qp.send_queue().free(), a.qp.cap().max_send_wr);
        }
        assert_eq!(lab.try_wait(&mut a.cq, MS), None);
    });
}

#[test]
fn send_with_invalidate_closes_the_key() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let pd = &lab.sides[1].pd;
        let open = pd
            .alloc_buffer(64, ALL | Access::REMOTE_INVALIDATE)
            .unwrap();
        let remote = Remote {
            addr: open.addr(),
            rkey: open.rkey(),
        };
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .write(1, SIGNALED, remote, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::RdmaWrite);
        b.receive(2, 0, 64);
        a.qp.send_queue()
            .batch()
            .send_inv(3, SIGNALED, open.rkey(), sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 3, WcOpcode::Send);
        let wc = ok(lab.wait(&mut b.cq), 2, WcOpcode::Recv);
        assert_eq!((wc.flags, wc.imm_data), (WcFlags::WITH_INV, open.rkey().0));
        a.qp.send_queue()
            .batch()
            .write(4, SIGNALED, remote, sge)
            .unwrap();
        assert_eq!(
            lab.wait(&mut a.cq).status,
            WcStatus::RemAccessErr,
            "the key is closed"
        );

        // A key that was not made for it stays open, and the sender hears of the refusal.
        let [mut a, mut b] = lab.pair::<Rc>();
        let shut = pd.alloc_buffer(64, ALL).unwrap();
        b.receive(2, 0, 64);
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .send_inv(3, SIGNALED, shut.rkey(), sge)
            .unwrap();
        let wc = lab.wait(&mut a.cq);
        assert_ne!(wc.status, WcStatus::Success);
        let [mut a, b] = lab.pair::<Rc>();
        let remote = Remote {
            addr: shut.addr(),
            rkey: shut.rkey(),
        };
        let sge = a.sge(0, 4);
        a.qp.send_queue()
            .batch()
            .write(4, SIGNALED, remote, sge)
            .unwrap();
        ok(lab.wait(&mut a.cq), 4, WcOpcode::RdmaWrite);
        drop(b);
    });
}

/// A fenced send waits for the READ before it, whose result it carries.
#[test]
fn fence() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for round in 0..20 {
            b.fill(0, 8000, round);
            b.receive(round, 16_000, 8000);
            let (sge, remote) = (a.sge(0, 8000), b.remote(0));
            let mut batch = a.qp.send_queue().batch();
            batch.read(1, SILENT, remote, &[sge]).unwrap();
            batch.send(2, SIGNALED | SendFlags::FENCE, sge).unwrap();
            drop(batch);
            ok(lab.wait(&mut b.cq), round, WcOpcode::Recv);
            b.assert_pattern(16_000, 8000, round);
            ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        }
    });
}

#[test]
fn multicast() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Ud>();
        let group = bareverbs_core::Gid::from_ipv4([239, 1, 2, 3].into());
        let dmac = [0x01, 0x00, 0x5e, 1, 2, 3];
        let attr = AhAttr {
            dgid: group,
            dmac,
            hop_limit: 1,
            ..AhAttr::default()
        };
        let ah = lab.sides[0].device.create_ah(&attr).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::ANY,
            remote_qkey: 0x1234_5678,
        };
        b.receive(1, 0, 4096);
        let send = |a: &mut End<'_, Ud>| {
            a.qp.send_queue()
                .batch()
                .send_to(9, SILENT, to, Inline(b"all"))
                .unwrap();
            lab.pause(MS);
        };
        send(&mut a);
        assert!(b.cq.poll().unwrap().is_none(), "not a member yet");
        b.qp.attach_mcast(group).unwrap();
        send(&mut a);
        assert_eq!(ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv).byte_len, 43);
        let (qp, error) = b.qp.destroy().unwrap_err();
        assert_eq!(error, DestroyQpError::Attached { groups: 1 });
        b.qp = qp;
        b.qp.detach_mcast(group).unwrap();
        assert!(b.qp.detach_mcast(group).is_err(), "only once");
        b.receive(2, 0, 4096);
        send(&mut a);
        assert!(b.cq.poll().unwrap().is_none(), "no longer a member");
        b.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

/// The card leaves the bus under traffic: posting and polling go on without harm, every handle can be dropped, and the
/// device reaches no memory that it should not.
#[test]
fn the_card_vanishes_under_traffic() {
    use bareverbs_core::{Config, Device, Resources};
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    let world = Builder::new().function(Card::new(1)).stepped();
    let mut resources = Box::new(Resources::<4, 4, 1, 256>::new());
    let device =
        Device::open(world.platform(0), Config::DEFAULT, resources.storage()).expect("bring-up");
    {
        let pd = device.alloc_pd().unwrap();
        let mut cq = device.create_cq(CqInit::new(16)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: CAP,
            sq_sig_all: true,
        };
        let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
        let srq = pd
            .create_srq(&mut SrqAttr {
                max_wr: 3,
                max_sge: 1,
                srq_limit: 0,
            })
            .unwrap();
        let buffer = pd.alloc_buffer(64, ALL).unwrap();
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        let row = bareverbs_core::qp::transition(
            bareverbs_core::QpKind::Rc,
            QpState::Reset,
            QpState::Init,
        )
        .unwrap();
        qp.modify(&attr, row.required | QpAttrMask::STATE).unwrap();
        world.with_model(0, |model| model.vanish());
        qp.recv_queue()
            .post(1, &[buffer.sge(0, 64).unwrap()])
            .unwrap();
        assert!(cq.poll().unwrap().is_none());
        cq.arm(false);
        let error = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        assert!(qp.modify(&error, QpAttrMask::STATE).is_err());
        assert!(device.alloc_pd().is_err());
        let before = world.now();
        let (qp, _) = qp.destroy().unwrap_err();
        drop((qp, srq, buffer, cq, pd));
        assert!(
            world.now() - before < 10 * MS,
            "nothing waits for a device that is gone"
        );
    }
    assert!(device.close().is_err());
    assert_eq!(world.take_faults(0), []);
}

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
                ok(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
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
        // What is lost is lost, and nobody hears of it.
        lab.world
            .with_wire(|wire| wire.rule(0, 1, Action::Drop, |_, _| true));
        b.receive(99, 0, 64);
        let sge = a.sge(0, 4);
        a.qp.send_queue().batch().send(60, SIGNALED, sge).unwrap();
        ok(lab.wait(&mut a.cq), 60, WcOpcode::Send);
        assert_eq!(lab.try_wait(&mut b.cq, 100 * MS), None);
    });
}

#[test]
fn datagrams() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Ud>();
        let ah = |node: usize, flow_label| {
            let other = &lab.sides[1 - node];
            let attr = AhAttr {
                dgid: other.gid,
                dmac: other.mac,
                hop_limit: 33,
                traffic_class: 0x28,
                flow_label,
                ..AhAttr::default()
            };
            lab.sides[node].device.create_ah(&attr).expect("AH")
        };
        let there = ah(0, 0x12345);
        let to = Destination {
            ah: &there,
            remote_qpn: b.qp.qpn(),
            remote_qkey: 0x1234_5678,
        };
        for (id, len) in [0, 1, 100, 1024, 4056].into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            b.receive(id, 0, 40 + 4096);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send_to_imm(id, SIGNALED, to, 7, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            let wc = ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(wc.byte_len as usize, 40 + len);
            assert_eq!((wc.src_qp, wc.qp_num), (a.qp.qpn(), b.qp.qpn()));
            assert_eq!(
                (wc.flags, wc.imm_data),
                (WcFlags::GRH | WcFlags::WITH_IMM, 7)
            );
            b.assert_pattern(40, len, id);
            // The IPv4 header, in the last 20 of the 40 bytes.
            let mut header = [0; 20];
            b.buffer.copy_out(20, &mut header).unwrap();
            assert_eq!(
                (header[0], header[1] >> 2, header[8], header[9]),
                (0x45, 0x28 >> 2, 33, 17)
            );
            assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
        }
        // The completion says which header came.
        b.receive(70, 0, 4096);
        a.qp.send_queue()
            .batch()
            .send_to(70, SILENT, to, Inline(b"hello"))
            .unwrap();
        lab.pause(MS);
        let header =
            b.cq.poll()
                .unwrap()
                .map(|completion| completion.network_header());
        assert_eq!(header, Some(NetworkHeader::Ipv4));

        // A wrong Q_Key, an unknown QP: dropped without a word.
        b.receive(80, 0, 4096);
        for wrong in [
            Destination {
                remote_qkey: 1,
                ..to
            },
            Destination {
                remote_qpn: Qpn::from_low_bits(0x7f_ffff),
                ..to
            },
        ] {
            a.qp.send_queue()
                .batch()
                .send_to(81, SIGNALED, wrong, Inline(b"x"))
                .unwrap();
            ok(lab.wait(&mut a.cq), 81, WcOpcode::Send);
        }
        assert_eq!(lab.try_wait(&mut b.cq, 10 * MS), None);
        a.qp.send_queue()
            .batch()
            .send_to(82, SIGNALED, to, Inline(b"right"))
            .unwrap();
        assert_eq!(ok(lab.wait(&mut b.cq), 80, WcOpcode::Recv).byte_len, 45);
    });
}

#[test]
fn management_datagrams() {
    lab(|lab| {
        let cap = QpCap {
            max_inline_data: 0,
            ..CAP
        };
        let mut ends = [lab.end::<Gsi>(0, cap), lab.end::<Gsi>(1, cap)];
        lab.connect(&mut ends, &|attr| attr.qkey = 0x8001_0000);
        let [mut a, mut b] = ends;
        let attr = AhAttr {
            dgid: lab.sides[1].gid,
            dmac: lab.sides[1].mac,
            hop_limit: 64,
            ..AhAttr::default()
        };
        let ah = lab.sides[0].device.create_ah(&attr).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::from_low_bits(1),
            remote_qkey: 0x8001_0000,
        };
        for id in 0..50 {
            a.fill(0, 256, id);
            b.receive(id, 0, 40 + 256);
            let sge = a.sge(0, 256);
            a.qp.send_queue()
                .batch()
                .send_to(id, SIGNALED, to, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            let wc = ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(
                (wc.byte_len, wc.src_qp.number(), wc.pkey_index),
                (296, 1, 0xffff)
            );
            b.assert_pattern(40, 256, id);
        }
    });
}

#[test]
fn shared_receive_queue() {
    for issi in [0b01, 0b10] {
        lab_with(
            |mut card| {
                card.supported_issi = issi;
                card
            },
            |lab| {
                let mut attr = SrqAttr {
                    max_wr: 7,
                    max_sge: 1,
                    srq_limit: 0,
                };
                let mut srq = lab.sides[1].pd.create_srq(&mut attr).unwrap();
                let mut first = [
                    lab.end::<Rc>(0, CAP),
                    lab.end_with::<Rc>(1, CAP, 63, Some(&srq)),
                ];
                let mut second = [
                    lab.end::<Rc>(0, CAP),
                    lab.end_with::<Rc>(1, CAP, 63, Some(&srq)),
                ];
                lab.connect(&mut first, &|_| {});
                lab.connect(&mut second, &|_| {});
                let pool = lab.sides[1].pd.alloc_buffer(7 * 64, ALL).unwrap();
                let mut posted = 0u64;
                let mut refill = |srq: &mut bareverbs_core::Srq<'_, _>, slot: usize| {
                    let sge = pool.sge(slot * 64, 64).unwrap();
                    srq.post(posted << 8 | slot as u64, &[sge]).unwrap();
                    posted += 1;
                };
                for slot in 0..7 {
                    refill(&mut srq, slot);
                }
                for round in 0..60u64 {
                    let ends = if round % 3 == 0 {
                        &mut second
                    } else {
                        &mut first
                    };
                    ends[0].fill(0, 64, round);
                    let sge = ends[0].sge(0, 64);
                    ends[0]
                        .qp
                        .send_queue()
                        .batch()
                        .send(round, SIGNALED, sge)
                        .unwrap();
                    let wc = lab.wait(&mut ends[1].cq);
                    assert_eq!(
                        (wc.status, wc.byte_len, wc.qp_num),
                        (WcStatus::Success, 64, ends[1].qp.qpn())
                    );
                    ok(lab.wait(&mut ends[0].cq), round, WcOpcode::Send);
                    let slot = (wc.wr_id & 0xff) as usize;
                    let mut data = [0; 64];
                    pool.copy_out(slot * 64, &mut data).unwrap();
                    assert_eq!(data[..], pattern(64, round));
                    refill(&mut srq, slot);
                }
                // The limit: an event when fewer are left.
                srq.arm_limit(6).unwrap();
                assert_eq!(srq.query().unwrap().srq_limit, 6);
                for id in 0..2 {
                    first[0]
                        .qp
                        .send_queue()
                        .batch()
                        .send(id, SIGNALED, Inline(b"x"))
                        .unwrap();
                    ok(lab.wait(&mut first[0].cq), id, WcOpcode::Send);
                }
                lab.pause(MS);
                assert!(srq.take_limit_event());
                let events: Vec<_> =
                    std::iter::from_fn(|| lab.sides[1].device.next_async_event()).collect();
                let expected = AsyncEvent::SrqLimitReached { srqn: srq.srqn() };
                assert!(events.contains(&expected), "{events:?}");
                drop((first, second));
                srq.destroy().map_err(|(_, error)| error).unwrap();
            },
        );
    }
}

/// Nobody receives: with retries the request waits, without it fails, and the queue is flushed.
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

#[track_caller]
fn flushed(lab: &Lab<'_>, end: &mut End<'_, Rc>, ids: &[u64]) {
    for &id in ids {
        let wc = next(lab, end);
        assert_eq!((wc.wr_id, wc.status), (id, WcStatus::WrFlushErr));
    }
}

#[track_caller]
fn next<T: bareverbs_core::QpType>(lab: &Lab<'_>, end: &mut End<'_, T>) -> Wc {
    let limit = lab.world.now() + 20_000 * MS;
    loop {
        if let Some(completion) = end.cq.poll().expect("the CQ works") {
            return completion.to_wc();
        }
        assert!(lab.world.now() < limit, "no completion");
        lab.pause(MS / 50);
    }
}

#[test]
fn nobody_answers() {
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
                Ok(None) => panic!("the CQ does not know that it was overrun"),
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
        // Armed: one event, however many completions.
        while lab.try_wait(&mut b.cq, MS).is_some() {}
        b.cq.arm(false);
        send(&mut a, &mut b, SILENT);
        send(&mut a, &mut b, SILENT);
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

/// What the firmware answers to a query is what was set.
#[test]
fn queries() {
    lab(|lab| {
        let [mut a, b] = lab.pair::<Rc>();
        let queried = a.qp.query().unwrap();
        let set = lab.attr(0, b.qp.qpn());
        let attr = queried.attr;
        assert_eq!(
            (attr.qp_state, attr.path_mtu, attr.dest_qp_num),
            (QpState::Rts, set.path_mtu, b.qp.qpn())
        );
        assert_eq!(
            (
                attr.timeout,
                attr.retry_cnt,
                attr.rnr_retry,
                attr.min_rnr_timer
            ),
            (10, 7, 7, 1)
        );
        assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
        assert_eq!(
            (attr.qp_access_flags, attr.pkey_index, attr.port_num),
            (set.qp_access_flags - Access::LOCAL_WRITE, 0, 1)
        );
        assert_eq!(
            (attr.ah_attr.dgid, attr.ah_attr.dmac, attr.ah_attr.hop_limit),
            (set.ah_attr.dgid, set.ah_attr.dmac, 64)
        );
        assert_eq!(queried.cap, a.qp.cap());
        drop(b);
    });
}

/// Memory of the caller, registered where it lies and under other addresses.
#[test]
fn memory_of_the_caller() {
    #![expect(unsafe_code)]
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        // UNSAFETY: the memory outlives its regions, and no reference to it is held while they exist.
        let mut memory = vec![0_u8; 5 * 4096 + 123];
        let region = std::ptr::NonNull::from(&mut memory[77..]);
        // SAFETY: as above.
        let mr = unsafe { lab.sides[0].pd.reg_mr(region, ALL) }.expect("registered");
        assert_eq!(
            (mr.addr(), mr.len()),
            (region.cast::<u8>().as_ptr() as u64, 5 * 4096 + 46)
        );
        let elsewhere = 0x7000_0000_0000 | (mr.addr() & 0xfff);
        // SAFETY: as above.
        let same =
            unsafe { lab.sides[0].pd.reg_mr_iova(region, elsewhere, ALL) }.expect("registered");
        b.fill(0, 20_000, 1);
        let (remote, sge) = (b.remote(0), mr.sge(10, 20_000).unwrap());
        a.qp.send_queue()
            .batch()
            .read(1, SIGNALED, remote, &[sge])
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::RdmaRead);
        let sge = b.sge(30_000, 20_000);
        let remote = Remote {
            addr: elsewhere + 10,
            rkey: same.rkey(),
        };
        b.qp.send_queue()
            .batch()
            .read(2, SIGNALED, remote, &[sge])
            .unwrap();
        ok(lab.wait(&mut b.cq), 2, WcOpcode::RdmaRead);
        b.assert_pattern(30_000, 20_000, 1);
        mr.dereg().map_err(|(_, error)| error).unwrap();
        let remote = Remote {
            addr: elsewhere,
            rkey: same.rkey(),
        };
        drop(same);
        assert!(memory[87..20_087] == pattern(20_000, 1));
        let sge = b.sge(0, 8);
        b.qp.send_queue()
            .batch()
            .read(3, SIGNALED, remote, &[sge])
            .unwrap();
        assert_eq!(
            lab.wait(&mut b.cq).status,
            WcStatus::RemAccessErr,
            "the key is gone"
        );
    });
}

/// Ten per cent of every kind of damage: RC delivers each message once, in order and whole.
#[test]
fn rc_over_a_bad_cable() {
    for seed in 0..40 {
        lab::bad_cable(seed, |lab| {
            let [mut a, mut b] = lab.pair_with::<Rc>(CAP, &|attr| attr.timeout = 6);
            lab.world
                .with_wire(|wire| wire.set_rates(Rates::all(100, MS / 5)));
            let mut state = seed * 2 + 1;
            for id in 0..20u64 {
                state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
                let len = (state >> 33) as usize % 5000;
                a.fill(0, len, id);
                let (sge, back, remote) = (a.sge(0, len), a.sge(8192, len), b.remote(16_384));
                match state >> 62 {
                    0 | 1 => {
                        b.receive(id, 0, 8192);
                        a.qp.send_queue().batch().send(id, SIGNALED, sge).unwrap();
                        assert_eq!(
                            ok(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
                            len,
                            "seed {seed}"
                        );
                        b.assert_pattern(0, len, id);
                        ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
                    }
                    2 => {
                        a.qp.send_queue()
                            .batch()
                            .write(id, SIGNALED, remote, sge)
                            .unwrap();
                        ok(lab.wait(&mut a.cq), id, WcOpcode::RdmaWrite);
                        b.assert_pattern(16_384, len, id);
                    }
                    _ => {
                        b.fill(16_384, len, id + 1000);
                        a.qp.send_queue()
                            .batch()
                            .read(id, SIGNALED, remote, &[back])
                            .unwrap();
                        ok(lab.wait(&mut a.cq), id, WcOpcode::RdmaRead);
                        a.assert_pattern(8192, len, id + 1000);
                    }
                }
            }
            lab.world.with_wire(|wire| wire.set_rates(Rates::default()));
        });
    }
}

/// The two halves of a QP and its CQ on three threads, over the threaded device.
#[test]
fn halves_on_threads() {
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    lab::run(&world, |lab| {
        const COUNT: u64 = 2000;
        let [mut a, mut b] = lab.pair::<Rc>();
        let (device, remote) = (lab.sides[0].device, b.remote(0));
        let sge = a.sge(0, 64);
        let End { qp, cq, .. } = &mut a;
        std::thread::scope(|scope| {
            let sends = qp.send_queue();
            scope.spawn(move || {
                let mut posted = 0;
                while posted < COUNT {
                    match sends.batch().write(posted, SIGNALED, remote, sge) {
                        Ok(()) => posted += 1,
                        Err(bareverbs_core::PostError::QueueFull { .. }) => {
                            std::thread::yield_now()
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            scope.spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    let mut batch = cq.batch().expect("the CQ works");
                    while let Some(completion) = batch.next() {
                        assert_eq!(
                            (completion.wr_id(), completion.status()),
                            (next, WcStatus::Success)
                        );
                        next += 1;
                    }
                    drop(batch);
                    bareverbs_core::Platform::relax(device.platform());
                }
            });
        });
        b.receive(0, 0, 64);
    });
}

/// QPs are destroyed on one thread while another polls their CQ: what is delivered is theirs, nothing is garbage, and
/// every slot and block comes back.
#[test]
fn destroying_while_another_thread_polls() {
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    lab::run(&world, |lab| {
        let side = &lab.sides[0];
        let mut cq = side.device.create_cq(CqInit::new(1023)).unwrap();
        for _ in 0..10 {
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: CAP,
                sq_sig_all: true,
            };
            let mut qps: Vec<_> = (0..16)
                .map(|_| side.pd.create_qp::<Rc>(&mut init).expect("QP"))
                .collect();
            let numbers: Vec<_> = qps.iter().map(bareverbs_core::Qp::qpn).collect();
            for qp in &mut qps {
                let row = bareverbs_core::qp::transition(
                    bareverbs_core::QpKind::Rc,
                    QpState::Reset,
                    QpState::Init,
                );
                let attr = QpAttr {
                    qp_state: QpState::Init,
                    ..QpAttr::DEFAULT
                };
                qp.modify(&attr, row.unwrap().required | QpAttrMask::STATE)
                    .unwrap();
                let error = QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::DEFAULT
                };
                qp.modify(&error, QpAttrMask::STATE).unwrap();
            }
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (done, cq, numbers) = (&done, &mut cq, &numbers);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        while let Some(completion) = cq.poll().expect("the CQ works") {
                            assert_eq!(completion.status(), WcStatus::WrFlushErr);
                            assert_eq!(numbers[completion.wr_id() as usize], completion.qp_num());
                        }
                    }
                });
                for (id, mut qp) in qps.into_iter().enumerate() {
                    for _ in 0..8 {
                        qp.recv_queue().post(id as u64, &[]).unwrap();
                        qp.send_queue()
                            .batch()
                            .send(id as u64, SILENT, Inline(b"x"))
                            .unwrap();
                    }
                    if id % 2 == 0 {
                        std::thread::yield_now();
                    }
                    drop(qp);
                }
                done.store(true, Ordering::Relaxed);
            });
            assert_eq!(cq.garbage_completions(), 0);
        }
    });
}

#[test]
fn limits_are_the_storages() {
    lab(|lab| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(4)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: CAP,
            sq_sig_all: true,
        };
        let mut qps = Vec::new();
        while let Ok(qp) = side.pd.create_qp::<Rc>(&mut init) {
            qps.push(qp);
        }
        assert_eq!(qps.len(), 16);
        qps.clear();
        side.pd
            .create_qp::<Rc>(&mut init)
            .expect("a slot is free again");
    });
}
