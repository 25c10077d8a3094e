//! Posting and polling against a device that the test plays itself, byte by byte.

mod rig;
mod support;

use bareverbs_core::ah::{AddressHandle, AhAttr};
use bareverbs_core::{
    BadWr, Completion, Config, Cq, CqError, Destination, Gid, Inline, LKey, PostError, Qpn, RKey,
    Rc, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, Sge, Uc, Ud, Wc, WcOpcode, WcStatus,
};
use bareverbs_firmware_cmds::event::Event;
use bareverbs_firmware_cmds::numbers::Cqn;
use rig::{Memory, Rig, cap, cqe, doorbells, fake, open, pair};
use support::Fake;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const SGE: Sge = Sge::new(0x7f00_0000_1000, 0x1000, LKey(0x0011_2201));
const REMOTE: Remote = Remote {
    addr: 0x1122_3344_5566_7788,
    rkey: RKey(0xaabb_cc01),
};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect()
}

fn poll(cq: &mut Cq<'_, &Fake>) -> Option<Wc> {
    cq.poll()
        .expect("CQ works")
        .map(|completion: Completion<'_>| completion.to_wc())
}

/// A test body with a device, its firmware, and a PD.
macro_rules! with_device {
    (|$fake:ident, $rig:ident, $device:ident, $pd:ident| $body:block) => {
        with_device!(0b11, |$fake, $rig, $device, $pd| $body)
    };
    ($issi:expr, |$fake:ident, $rig:ident, $device:ident, $pd:ident| $body:block) => {
        let $fake = fake($issi);
        let mut memory = Memory::new();
        {
            let $rig = Rig::new(&$fake);
            let $device = open(&$fake, &mut memory, Config::DEFAULT);
            {
                let $pd = $device.alloc_pd().expect("PD");
                $body
            }
            $device.close().expect("closed");
        }
        $fake.assert_clean();
    };
}

/// The WQE that rdma-core's helpers give for the same request.
#[test]
fn write_is_built_as_rdma_core_builds_it() {
    with_device!(|fake, rig, device, pd| {
        rig.lock().qpn = 0xabcde;
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(16, 0, 1, 0), 16, false);
        for counter in 0..0x1234u16 {
            qp.send_queue()
                .batch()
                .send(0, SIGNALED, SGE)
                .expect("room");
            rig.complete(&fake, cq.cqn().number(), 0xabcde, 0, counter, 0x0a);
            assert_eq!(poll(&mut cq).expect("completion").status, WcStatus::Success);
        }
        doorbells(&fake);
        qp.send_queue()
            .batch()
            .write(1, SIGNALED, REMOTE, SGE)
            .expect("room");
        let wqe = rig.send_wqe(&fake, 0xabcde, 0x1234 % 64, 48);
        assert_eq!(
            words(&wqe),
            [
                0x0012_3408,
                0x0abc_de03,
                0x0000_0008,
                0,
                0x1122_3344,
                0x5566_7788,
                0xaabb_cc01,
                0,
                0x0000_1000,
                0x0011_2201,
                0x0000_7f00,
                0x0000_1000,
            ]
        );
        let rung = doorbells(&fake);
        assert_eq!(rung.len(), 1);
        assert!(rung[0].0 == 0x800 || rung[0].0 == 0x900);
        assert_eq!(rung[0].1, 0x0012_3408_0abc_de03);
        assert_eq!(rig.records(&fake, 0xabcde).1, 0x1235);
    });
}

#[test]
fn control_segment_of_every_operation() {
    with_device!(|fake, rig, device, pd| {
        rig.lock().qpn = 0x11;
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(16, 0, 1, 0), 16, false);
        let all = SendFlags::all();
        let mut batch = qp.send_queue().batch();
        batch.send(0, SIGNALED, SGE).unwrap();
        batch.send_inv(0, SIGNALED, RKey(0x77), SGE).unwrap();
        batch.write(0, SendFlags::empty(), REMOTE, SGE).unwrap();
        batch
            .write_imm(0, SIGNALED, REMOTE, 0x0102_0304, SGE)
            .unwrap();
        batch.read(0, SendFlags::FENCE, REMOTE, &[SGE]).unwrap();
        batch
            .compare_swap(0, SIGNALED, REMOTE, 0x1111, 0x2222, SGE)
            .unwrap();
        batch
            .fetch_add(0, SendFlags::SOLICITED, REMOTE, 0x3333, SGE)
            .unwrap();
        batch.send_imm(0, all, 0xdead_beef, SGE).unwrap();
        drop(batch);
        let control = |block: u64| words(&rig.send_wqe(&fake, 0x11, block, 16));
        assert_eq!(control(0), [0x0000_000a, 0x0000_1102, 0x08, 0]);
        assert_eq!(control(1), [0x0000_0101, 0x0000_1102, 0x08, 0x77]);
        assert_eq!(control(2), [0x0000_0208, 0x0000_1103, 0x00, 0]);
        assert_eq!(control(3), [0x0000_0309, 0x0000_1103, 0x08, 0x0102_0304]);
        assert_eq!(control(4), [0x0000_0410, 0x0000_1103, 0x80, 0]);
        assert_eq!(control(5), [0x0000_0511, 0x0000_1104, 0x08, 0]);
        assert_eq!(control(6), [0x0000_0612, 0x0000_1104, 0x02, 0]);
        // The reference's vector.
        assert_eq!(control(7), [0x0000_070b, 0x0000_1102, 0x8a, 0xdead_beef]);
        let swap = words(&rig.send_wqe(&fake, 0x11, 5, 64));
        assert_eq!(swap[4..8], [0x1122_3344, 0x5566_7788, 0xaabb_cc01, 0]);
        assert_eq!(swap[8..12], [0, 0x2222, 0, 0x1111]);
        assert_eq!(swap[12..14], [0x1000, 0x0011_2201]);
        let add = words(&rig.send_wqe(&fake, 0x11, 6, 64));
        assert_eq!(add[8..12], [0, 0x3333, 0, 0]);
        assert_eq!(doorbells(&fake).len(), 1, "one doorbell for the batch");
    });
}

/// What is posted as a value is what the methods post.
#[test]
fn work_requests_as_values() {
    with_device!(|fake, rig, device, pd| {
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(32, 0, 4, 64), 32, false);
        let sges = [
            SGE,
            Sge::new(0x55, 7, LKey(9)),
            Sge::new(1, 0, LKey(2)),
            SGE,
        ];
        let ops = [
            SendOp::Send,
            SendOp::SendImm(3),
            SendOp::SendInv(RKey(4)),
            SendOp::Write(REMOTE),
            SendOp::WriteImm(REMOTE, 5),
            SendOp::Read(REMOTE),
            SendOp::CompareSwap {
                remote: REMOTE,
                compare: 6,
                swap: 7,
            },
            SendOp::FetchAdd {
                remote: REMOTE,
                add: 8,
            },
        ];
        let data = [
            SendData::Sges(&sges[..1]),
            SendData::Sges(&sges),
            SendData::Inline(b"hello"),
            SendData::Sges(&[]),
        ];
        let mut block = 0;
        for op in ops {
            for data in data {
                let wr = SendWr {
                    wr_id: 0,
                    op,
                    flags: SIGNALED,
                    data,
                };
                let before = qp.send_queue().free();
                let inline = matches!(data, SendData::Inline(_));
                let reads = matches!(
                    op,
                    SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
                );
                let result = qp.send_queue().post(&wr);
                if inline && reads {
                    assert_eq!(result, Err(PostError::Unsupported));
                    assert_eq!(qp.send_queue().free(), before);
                    continue;
                }
                result.expect("posted");
                let units = words(&rig.send_wqe(&fake, 0x100, block, 8))[1] & 0x3f;
                let fixed = match op {
                    SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => 1,
                    SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 3,
                    _ => 2,
                };
                let of_data = match data {
                    SendData::Inline(_) => 1,
                    // The empty one is left out.
                    SendData::Sges(sges) => {
                        sges.iter().filter(|sge| sge.length != 0).count() as u32
                    }
                };
                assert_eq!(units, fixed + of_data, "{wr:?}");
                let at = (fixed * 4) as usize;
                let wqe = words(&rig.send_wqe(&fake, 0x100, block, 128));
                match data {
                    SendData::Inline(_) => {
                        assert_eq!(wqe[at], 0x8000_0005);
                        assert_eq!(wqe[at + 1], u32::from_be_bytes(*b"hell"));
                        assert_eq!(wqe[at + 2] >> 24, u32::from(b'o'));
                    }
                    SendData::Sges([]) => {}
                    SendData::Sges(_) => {
                        assert_eq!(wqe[at..at + 4], [0x1000, 0x0011_2201, 0x7f00, 0x1000])
                    }
                }
                block += u64::from(units.div_ceil(4));
            }
        }
        let elsewhere = AddressHandle::encode(
            &AhAttr {
                dmac: [2; 6],
                ..AhAttr::default()
            },
            None,
            0,
        )
        .unwrap();
        let to = Destination {
            ah: &elsewhere,
            remote_qpn: Qpn::from_low_bits(1),
            remote_qkey: 0,
        };
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::SendTo(to),
            flags: SIGNALED,
            data: data[0],
        };
        assert_eq!(
            qp.send_queue().post(&wr),
            Err(PostError::Unsupported),
            "RC has no datagrams"
        );
    });
}

#[test]
fn transports_refuse_what_they_do_not_have() {
    with_device!(|fake, rig, device, pd| {
        let (_cq, mut uc) = pair::<Uc>(&device, &pd, cap(4, 0, 1, 0), 4, false);
        let (_cq, mut ud) = pair::<Ud>(&device, &pd, cap(4, 0, 1, 0), 4, false);
        let wr = |op| SendWr {
            wr_id: 0,
            op,
            flags: SIGNALED,
            data: SendData::Sges(&[SGE]),
        };
        for op in [
            SendOp::Read(REMOTE),
            SendOp::SendInv(RKey(1)),
            SendOp::FetchAdd {
                remote: REMOTE,
                add: 1,
            },
        ] {
            assert_eq!(uc.send_queue().post(&wr(op)), Err(PostError::Unsupported));
            assert_eq!(ud.send_queue().post(&wr(op)), Err(PostError::Unsupported));
        }
        for op in [
            SendOp::Send,
            SendOp::Write(REMOTE),
            SendOp::WriteImm(REMOTE, 1),
        ] {
            uc.send_queue().post(&wr(op)).expect("UC has it");
            assert_eq!(ud.send_queue().post(&wr(op)), Err(PostError::Unsupported));
        }
        let _ = (fake.live(), rig);
    });
}

/// The address vector of the reference, in a WQE whose data goes round the ring's end.
#[test]
fn datagram_header_and_wrap() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Ud>(&device, &pd, cap(1, 0, 1, 0), 4, false);
        let attr = AhAttr {
            dgid: Gid::from_ipv4([192, 168, 1, 2].into()),
            sgid_index: 0,
            hop_limit: 64,
            traffic_class: 0x10,
            flow_label: 0x12345,
            dmac: [2, 0, 0, 0, 0, 9],
            ..AhAttr::default()
        };
        let ah = device.create_ah(&attr).expect("AH");
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::from_low_bits(0x42),
            remote_qkey: 0x1122_3344,
        };
        // The ring has two blocks: one request without data moves the next one to the last block.
        assert_eq!(qp.cap().max_send_wr, 1);
        let none: &[Sge] = &[];
        qp.send_queue()
            .batch()
            .send_to(1, SIGNALED, to, none)
            .unwrap();
        assert_eq!(
            words(&rig.send_wqe(&fake, 0x100, 0, 8)),
            [0x0000_000a, 0x0001_0004]
        );
        rig.complete(&fake, cq.cqn().number(), 0x100, 0, 0, 0x0a);
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(1));
        qp.send_queue()
            .batch()
            .send_to_imm(2, SIGNALED, to, 9, SGE)
            .unwrap();
        let wqe = words(&rig.send_wqe(&fake, 0x100, 1, 64));
        assert_eq!(wqe[..4], [0x0000_010b, 0x0001_0005, 8, 9]);
        // 58177 is the source port that the kernel uses for this label.
        assert_eq!(wqe[4..8], [0x1122_3344, 0, 0x8000_0042, 58177]);
        assert_eq!(wqe[8..12], [0, 0x0200_0000, 0x0009_1040, 0x4001_2345]);
        assert_eq!(wqe[12..], [0, 0, 0x0000_ffff, 0xc0a8_0102]);
        assert_eq!(
            words(&rig.send_wqe(&fake, 0x100, 0, 16)),
            [0x1000, 0x0011_2201, 0x7f00, 0x1000]
        );
        rig.complete(&fake, cq.cqn().number(), 0x100, 0, 1, 0x0a);
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(2));
    });
}

/// Inline data of every length at every place in the ring, so that it wraps everywhere that it can.
#[test]
fn inline_data_wraps_at_the_end_of_the_ring() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(1, 0, 1, 220), 4, false);
        let limit = qp.cap().max_inline_data as usize;
        let blocks = 8;
        let mut at = 0u16;
        for round in 0..400usize {
            let len = round % (limit + 1);
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8 | 1).collect();
            qp.send_queue()
                .batch()
                .write(round as u64, SIGNALED, REMOTE, Inline(&data))
                .expect("room");
            let mut ring = rig.send_wqe(&fake, 0x100, 0, blocks * 64);
            ring.rotate_left(usize::from(at) % blocks * 64);
            let units = words(&ring[4..8])[0] & 0x3f;
            assert_eq!(
                units as usize,
                if len == 0 { 2 } else { (36 + len).div_ceil(16) }
            );
            if len != 0 {
                assert_eq!(words(&ring[32..36])[0], 0x8000_0000 | len as u32);
                assert_eq!(ring[36..36 + len], data, "{len} bytes at block {at}");
            }
            rig.complete(&fake, cq.cqn().number(), 0x100, 0, at, 0x08);
            assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(round as u64));
            at = at.wrapping_add(units.div_ceil(4) as u16);
        }
        let long = vec![0; limit + 1];
        let error = qp.send_queue().batch().send(0, SIGNALED, Inline(&long));
        assert_eq!(
            error,
            Err(PostError::InlineTooLong {
                given: limit + 1,
                limit: limit as u32
            })
        );
    });
}

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
            [(0x900, 0x0000_030a_0001_0002)],
            "the other register's turn"
        );
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
                    .expect("room");
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

/// Nothing that a broken device writes is believed, indexes anything, or stops what is right.
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
        // An event of a CQ that does not exist is nobody's.
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
