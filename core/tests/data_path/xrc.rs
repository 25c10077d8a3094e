//! Extended reliable connections: how requests lie in the send ring, and which completions of an SRQ are accepted.

use bareverbs_core::{CqInit, SendData, SendFlags, SendOp, SendWr, Srq, SrqAttr, Srqn, XrcSend};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::srq::CreateXrcSrqIn;
use bareverbs_firmware_cmds::status::Status;
use zerocopy::FromBytes;

use crate::rig::{cap, cqe, pair};
use crate::support::Fake;
use crate::support::firmware::Action;
use crate::{REMOTE, SGE, SIGNALED, count, poll, words};

/// The SRQ's number is in a separate segment right behind the control segment, the rest follows as on RC.
#[test]
fn the_srq_comes_before_the_rest() {
    with_device!(|fake, rig, device, pd| {
        rig.lock().qpn = 0x11;
        let (_cq, mut qp) = pair::<XrcSend>(&device, &pd, cap(16, 0, 1, 0), 16, false);
        let srqn = Srqn::from_low_bits(0x12_3456);
        let mut batch = qp.send_queue().batch();
        batch.send_imm(0, SIGNALED, srqn, 0xdead_beef, SGE).unwrap();
        batch
            .write(0, SendFlags::empty(), srqn, REMOTE, SGE)
            .unwrap();
        batch
            .compare_swap(0, SIGNALED, srqn, REMOTE, 0x1111, 0x2222, SGE)
            .unwrap();
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::FetchAdd {
                remote: REMOTE,
                add: 0x3333,
            },
            flags: SIGNALED,
            data: SendData::Sges(&[SGE]),
        };
        batch.push_xrc(srqn, &wr).unwrap();
        drop(batch);
        let data = [0x1000, 0x0011_2201, 0x7f00, 0x1000];
        let remote = [0x1122_3344, 0x5566_7788, 0xaabb_cc01, 0];
        let xrc = [0x0012_3456, 0, 0, 0];
        let send = words(&rig.send_wqe(&fake, 0x11, 0, 48));
        assert_eq!(send[..4], [0x0000_000b, 0x0000_1103, 0x08, 0xdead_beef]);
        assert_eq!(send[4..], [xrc, data].concat());
        let write = words(&rig.send_wqe(&fake, 0x11, 1, 64));
        assert_eq!(write[..4], [0x0000_0108, 0x0000_1104, 0x00, 0]);
        assert_eq!(write[4..], [xrc, remote, data].concat());
        // The data of an atomic is in the next block.
        let swap = words(&rig.send_wqe(&fake, 0x11, 2, 80));
        assert_eq!(swap[..4], [0x0000_0211, 0x0000_1105, 0x08, 0]);
        let operands = [0, 0x2222, 0, 0x1111];
        assert_eq!(swap[4..], [xrc, remote, operands, data].concat());
        let add = words(&rig.send_wqe(&fake, 0x11, 4, 80));
        assert_eq!(add[..4], [0x0000_0412, 0x0000_1105, 0x08, 0]);
        assert_eq!(add[4..], [xrc, remote, [0, 0x3333, 0, 0], data].concat());
    });
}

/// The user index that the last XRC SRQ was created with.
fn user_index(fake: &Fake) -> u32 {
    let inner = fake.lock();
    let posted = inner
        .history
        .iter()
        .rev()
        .find(|posted| posted.is(Opcode::CreateXrcSrq))
        .expect("CREATE_XRC_SRQ");
    let (create, _) = CreateXrcSrqIn::read_from_prefix(&posted.input).unwrap();
    create.xrc_srq_context_entry().user_index()
}

/// With every QP number, a completion of the SRQ is one of what was posted, once; sends it has none.
#[test]
fn completions_of_an_srq() {
    with_device!(|fake, rig, device, pd| {
        let (mut cq, _qp) = pair::<XrcSend>(&device, &pd, cap(4, 0, 1, 0), 63, false);
        let cqn = cq.cqn().number();
        let domain = device.open_xrcd().unwrap();
        let mut size = SrqAttr {
            max_wr: 3,
            max_sge: 1,
            srq_limit: 0,
        };
        let mut srq: Srq<'_, _> = pd.create_xrc_srq(&domain, &cq, &mut size).unwrap();
        let user = user_index(&fake);
        for id in 0..2 {
            srq.post(id, &[SGE]).unwrap();
        }
        let garbage = [
            // Sends, whose arrays do not exist.
            cqe(user, 0x100, 0, 0, 0x0a),
            cqe(user, 0x777, 13, 0, 0x0a),
            // Never posted.
            cqe(user, 0x777, 2, 2, 0),
            cqe(user, 0x777, 14, 3, 0),
            cqe(user, 0x777, 2, 4, 0),
            cqe(user, 0x777, 2, 0xffff, 0),
            // Another one's.
            cqe(user + 1, 0x777, 2, 0, 0),
            cqe(user, 0x777, 6, 0, 0),
        ];
        for bytes in garbage {
            rig.cqe(&fake, cqn, bytes);
        }
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), garbage.len() as u64);
        // In any order, under any number, once.
        rig.cqe(&fake, cqn, cqe(user, 0x777, 2, 1, 0));
        rig.cqe(&fake, cqn, cqe(user, 0x888, 1, 0, 0));
        rig.cqe(&fake, cqn, cqe(user, 0x777, 2, 1, 0));
        let wc = poll(&mut cq).unwrap();
        assert_eq!((wc.wr_id, wc.qp_num.number()), (1, 0x777));
        let wc = poll(&mut cq).unwrap();
        assert_eq!((wc.wr_id, wc.qp_num.number()), (0, 0x888));
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), garbage.len() as u64 + 1);
        // Completions after its end are dropped.
        srq.post(7, &[SGE]).unwrap();
        srq.destroy().map_err(|(_, error)| error).unwrap();
        rig.cqe(&fake, cqn, cqe(user, 0x777, 2, 2, 0));
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), garbage.len() as u64 + 1);
    });
}

/// An SRQ that the device keeps loses its own slots. The CQ is free of it: it can be destroyed, or has been dropped before
/// and goes with it.
#[test]
fn an_srq_that_is_not_destroyed_leaves_its_cq() {
    for dropped in [false, true] {
        with_device!(|fake, rig, device, pd| {
            let mut cq = device.create_cq(CqInit::new(7)).unwrap();
            let cqn = cq.cqn().number();
            let domain = device.open_xrcd().unwrap();
            let mut size = SrqAttr {
                max_wr: 3,
                max_sge: 1,
                srq_limit: 0,
            };
            let mut srq = pd.create_xrc_srq(&domain, &cq, &mut size).unwrap();
            srq.post(0, &[SGE]).unwrap();
            rig.lock().instead.push((
                Opcode::DestroyXrcSrq,
                Action::Fail(Status::ResourceBusy, 0xabc),
            ));
            if dropped {
                drop(cq);
                drop(srq);
            } else {
                drop(srq);
                // The device may go on with it. That is not an error of the device, and no completion of the host's.
                rig.cqe(&fake, cqn, cqe(user_index(&fake), 0x777, 2, 0, 0));
                assert_eq!((poll(&mut cq), cq.garbage_completions()), (None, 0));
                cq.destroy().map_err(|(_, error)| error).unwrap();
            }
            assert!(rig.lock().instead.is_empty());
            assert_eq!(count(&fake, Opcode::DestroyCq), 1);
            let cqs: Vec<_> = (0..4)
                .map(|_| device.create_cq(CqInit::new(1)).expect("a slot"))
                .collect();
            drop(cqs);
        });
    }
}
