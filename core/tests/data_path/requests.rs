//! Layouts of work requests in the send ring.

use bareverbs_core::ah::{AddressHandle, AhAttr};
use bareverbs_core::{
    Destination, Gid, Inline, LKey, PostError, Qpn, RKey, Rc, SendData, SendFlags, SendOp, SendWr,
    Sge, Uc, Ud, WcStatus,
};

use crate::rig::{cap, doorbells, pair};
use crate::{REMOTE, SGE, SIGNALED, poll, words};

/// The WQE that rdma-core's helpers give for the same request.
#[test]
fn write_is_built_as_rdma_core_builds_it() {
    with_device!(|fake, rig, device, pd| {
        rig.lock().qpn = 0xabcde;
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(64, 0, 1, 0), 16, false);
        for counter in 0..0x1234u16 {
            qp.send_queue()
                .batch()
                .send(0, SIGNALED, SGE)
                .expect("queue space");
            rig.complete(&fake, cq.cqn().number(), 0xabcde, 0, counter, 0x0a);
            assert_eq!(poll(&mut cq).expect("completion").status, WcStatus::Success);
        }
        doorbells(&fake);
        qp.send_queue()
            .batch()
            .write(1, SIGNALED, REMOTE, SGE)
            .expect("queue space");
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

/// Work requests posted as values are those that the methods post.
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

/// The route of `push_to` is the request's destination. One that names a second one is not posted.
#[test]
fn a_request_has_one_destination() {
    with_device!(|fake, _rig, device, pd| {
        let (_cq, mut ud) = pair::<Ud>(&device, &pd, cap(4, 0, 1, 0), 4, false);
        let attr = AhAttr {
            dmac: [2; 6],
            ..AhAttr::default()
        };
        let ah = AddressHandle::encode(&attr, None, 0, 0).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::from_low_bits(1),
            remote_qkey: 0,
        };
        let mut batch = ud.send_queue().batch();
        let mut push = |op| {
            let wr = SendWr {
                wr_id: 0,
                op,
                flags: SIGNALED,
                data: SendData::Sges(&[SGE]),
            };
            batch.push_to(to, &wr)
        };
        for op in [SendOp::SendTo(to), SendOp::SendToImm(to, 1)] {
            assert_eq!(push(op), Err(PostError::Unsupported));
        }
        for op in [SendOp::Send, SendOp::SendImm(1)] {
            assert_eq!(push(op), Ok(()));
        }
        drop(batch);
        assert_eq!(doorbells(&fake).len(), 1, "of the two together");
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
        assert_eq!(wqe[8..12], [0, 0x0200_0000, 0x0009_1040, 0x0001_2345]);
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
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(2, 0, 1, 220), 4, false);
        let limit = qp.cap().max_inline_data as usize;
        let blocks = 8;
        let mut at = 0u16;
        for round in 0..400usize {
            let len = round % (limit + 1);
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8 | 1).collect();
            qp.send_queue()
                .batch()
                .write(round as u64, SIGNALED, REMOTE, Inline(&data))
                .expect("queue space");
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
                given: limit as u32 + 1,
                limit: limit as u16
            })
        );
    });
}
