//! Verbs objects against a scripted firmware: what they tell it, what happens when it says no, and what is left over.

mod rig;
mod support;

use std::time::Duration;

use bareverbs_core::qp::{TransitionError, transition};
use bareverbs_core::{
    Access, Config, Cq, CqError, CqInit, CreateQpError, Device, Gsi, LKey, ModifyError, MrError,
    Mtu, PostError, Qp, QpAttr, QpAttrMask, QpInitAttr, QpKind, QpState, QpType, Qpn, Rc, RecvWr,
    SendFlags, Sge, SrqAttr, SrqError, Uc, Ud, Wc, WcStatus,
};
use bareverbs_firmware_cmds::event::{Event, EventType, Queue};
use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::{Init2rtrQpIn, Qpc};
use bareverbs_firmware_cmds::status::Status;
use rig::{Memory, Rig, cap, cqe, doorbells, fake, open, pair, to_rts};
use support::{Action, Fake};
use zerocopy::FromBytes;

const SGE: Sge = Sge::new(0x1000, 64, LKey(5));

fn poll(cq: &mut Cq<'_, &Fake>) -> Option<Wc> {
    cq.poll()
        .expect("CQ works")
        .map(|completion| completion.to_wc())
}

fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(2);
    config.teardown_timeout = Duration::from_millis(2);
    config
}

/// Runs a test body with a device and checks that nothing is left when it is done.
macro_rules! with_device {
    (|$fake:ident, $rig:ident, $device:ident| $body:block) => {
        with_device!(0b11, |$fake, $rig, $device| $body)
    };
    ($issi:expr, |$fake:ident, $rig:ident, $device:ident| $body:block) => {
        let $fake = fake($issi);
        let mut memory = Memory::new();
        {
            let $rig = Rig::new(&$fake);
            let $device = open(&$fake, &mut memory, quick());
            $body
            $device.close().expect("closed");
        }
        $fake.assert_clean();
    };
}

fn commands(fake: &Fake, opcode: Opcode) -> Vec<Vec<u8>> {
    let inner = fake.lock();
    inner
        .history
        .iter()
        .filter(|posted| posted.is(opcode))
        .map(|posted| posted.input.clone())
        .collect()
}

#[test]
fn the_default_pd_is_shared_and_counted() {
    with_device!(|fake, _rig, device| {
        let first = device.default_pd().unwrap();
        let second = device.default_pd().unwrap();
        assert_eq!(first.pdn(), second.pdn());
        assert_eq!(commands(&fake, Opcode::AllocPd).len(), 1);
        drop(first);
        assert_eq!(commands(&fake, Opcode::DeallocPd).len(), 0);
        drop(second);
        assert_eq!(commands(&fake, Opcode::DeallocPd).len(), 1);
        let third = device.default_pd().unwrap();
        assert_eq!(commands(&fake, Opcode::AllocPd).len(), 2);
        third.dealloc().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn memory_keys_say_what_was_asked() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mut keys = Vec::new();
        for access in [
            Access::empty(),
            Access::LOCAL_WRITE,
            Access::REMOTE_READ,
            all,
            all | Access::RELAXED_ORDERING,
        ] {
            let buffer = pd.alloc_buffer(5000, access).unwrap();
            let input = commands(&fake, Opcode::CreateMkey).pop().unwrap();
            let (create, list) = CreateMkeyIn::read_from_prefix(&input).unwrap();
            let mkc = create.memory_key_mkey_entry();
            assert_eq!(mkc.access_mode_1_0(), 1);
            assert!(mkc.lr());
            assert_eq!(mkc.lw(), access.contains(Access::LOCAL_WRITE));
            assert_eq!(mkc.rr(), access.contains(Access::REMOTE_READ));
            assert_eq!(mkc.rw(), access.contains(Access::REMOTE_WRITE));
            assert_eq!(mkc.a(), access.contains(Access::REMOTE_ATOMIC));
            // This device cannot, so it is not asked to.
            assert!(!mkc.relaxed_ordering_write() && !mkc.relaxed_ordering_read());
            assert_eq!((mkc.start_addr(), mkc.len()), (buffer.addr(), 5000));
            assert_eq!((mkc.pd(), mkc.qpn()), (pd.pdn().number(), 0xff_ffff));
            assert_eq!(
                list.len() as u32,
                create.translations_octword_actual_size() * 16
            );
            assert_eq!(
                mkc.translations_octword_size(),
                create.translations_octword_actual_size()
            );
            // The translations lead from the region's addresses to the buffer's memory.
            let page = 1_u64 << mkc.log_page_size();
            let first = u64::from_be_bytes(list[..8].try_into().unwrap());
            assert_eq!(first + (buffer.addr() & (page - 1)), buffer.addr());
            assert_eq!(buffer.lkey().0, buffer.rkey().0);
            keys.push(buffer.lkey().variant());
            buffer.copy_in(4990, b"0123456789").unwrap();
            let mut back = [0; 10];
            buffer.copy_out(4990, &mut back).unwrap();
            assert_eq!(&back, b"0123456789");
            assert_eq!(
                fake.lock().dma_read(buffer.addr() + 4990, 10),
                b"0123456789"
            );
            assert!(
                buffer.copy_in(4991, b"0123456789").is_err()
                    && buffer.copy_out(usize::MAX, &mut back).is_err()
            );
            assert_eq!(
                buffer.sge(4990, 10).map(|sge| sge.addr),
                Some(buffer.addr() + 4990)
            );
            assert!(buffer.sge(4990, 11).is_none());
        }
        assert!(
            keys.windows(2).all(|pair| pair[0] != pair[1]),
            "a new variant each time"
        );
        assert_eq!(commands(&fake, Opcode::DestroyMkey).len(), 5);
        let error = pd.alloc_buffer(64, Access::REMOTE_WRITE).unwrap_err();
        assert_eq!(
            error,
            MrError::NeedsLocalWrite {
                access: Access::REMOTE_WRITE
            }
        );
        assert_eq!(pd.alloc_buffer(0, all).unwrap_err(), MrError::Empty);
        let refused = pd.alloc_buffer(usize::MAX - 63, all).unwrap_err();
        assert!(matches!(refused, MrError::Memory(_)), "{refused}");
        let _ = rig;
    });
}

#[test]
fn a_qp_context_describes_its_rings() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let send_cq = device.create_cq(CqInit::new(10)).unwrap();
        let recv_cq = device.create_cq(CqInit::new(20)).unwrap();
        let asked = cap(10, 5, 3, 0);
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: asked,
            sq_sig_all: false,
        };
        let qp = pd.create_qp::<Rc>(&mut init).unwrap();
        assert_eq!(init.cap, qp.cap());
        let object = rig.lock().qps[&qp.qpn().number()];
        let qpc = object.create.qpc();
        assert_eq!(
            (qpc.st(), qpc.pm_state(), qpc.pd()),
            (0, 3, pd.pdn().number())
        );
        assert_eq!(
            (qpc.cqn_snd(), qpc.cqn_rcv()),
            (send_cq.cqn().number(), recv_cq.cqn().number())
        );
        // 10 of 256 bytes, rounded: 64 blocks; 8 receives of 64 bytes.
        assert_eq!(
            (qpc.log_sq_size(), qpc.log_rq_size(), qpc.log_rq_stride()),
            (6, 3, 2)
        );
        assert_eq!((qpc.no_sq(), qpc.rq_type(), qpc.uar_page()), (false, 0, 3));
        assert_eq!(qpc.dbr_addr(), object.ring + 8 * 64 + 64 * 64);
        assert_eq!(qpc.dbr_addr() % 64, 0);
        drop(qp);
        let mut init = QpInitAttr {
            cap: cap(0, 0, 0, 0),
            ..init
        };
        let bare = pd.create_qp::<Ud>(&mut init).unwrap();
        let object = rig.lock().qps[&bare.qpn().number()];
        assert_eq!(
            (
                object.create.qpc().st(),
                object.create.qpc().no_sq(),
                object.create.qpc().rq_type()
            ),
            (2, true, 3)
        );
        let gsi = pd
            .create_qp::<Gsi>(&mut QpInitAttr {
                cap: cap(4, 4, 1, 0),
                ..init
            })
            .unwrap();
        assert_eq!(rig.lock().qps[&gsi.qpn().number()].create.qpc().st(), 8);
        let error = pd
            .create_qp::<Uc>(&mut QpInitAttr {
                cap: cap(1, 1, 1000, 0),
                ..init
            })
            .unwrap_err();
        assert!(
            matches!(error, CreateQpError::Cap(cap) if cap.field == "max_send_sge" && cap.asked == 1000)
        );
        let _ = fake.live();
    });
}

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
        // Without a poll in between: creating looks after the goodbyes when slots run out.
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
fn storage_is_the_limit() {
    with_device!(|_fake, _rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(8)).unwrap();
        let create = || {
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: cap(1, 1, 1, 0),
                sq_sig_all: true,
            };
            pd.create_qp::<Rc>(&mut init)
        };
        let qps: Vec<_> = (0..4).map(|_| create().unwrap()).collect();
        assert_eq!(create().unwrap_err(), CreateQpError::NoSlot { limit: 4 });
        drop(qps);
        create().unwrap();
    });
}

/// After RESET the QP starts afresh, and what lies in the CQ of its earlier life is not seen.
#[test]
fn reset_forgets() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (mut cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, true);
        let cqn = cq.cqn().number();
        for id in 0..2 {
            qp.send_queue()
                .batch()
                .send(id, SendFlags::empty(), SGE)
                .unwrap();
            qp.recv_queue().post(id, &[SGE]).unwrap();
        }
        rig.complete(&fake, cqn, 0x100, 0, 0, 0x0a);
        rig.complete(&fake, cqn, 0x100, 2, 0, 0);
        let attr = QpAttr {
            qp_state: QpState::Reset,
            ..QpAttr::DEFAULT
        };
        qp.modify(&attr, QpAttrMask::STATE).unwrap();
        assert_eq!(qp.state(), QpState::Reset);
        assert_eq!(rig.records(&fake, 0x100), (0, 0));
        assert_eq!(
            qp.send_queue().batch().send(0, SendFlags::empty(), SGE),
            Err(PostError::WrongState)
        );
        to_rts(&mut qp);
        qp.send_queue()
            .batch()
            .send(77, SendFlags::empty(), SGE)
            .unwrap();
        qp.recv_queue().post(78, &[SGE]).unwrap();
        rig.complete(&fake, cqn, 0x100, 0, 0, 0x0a);
        rig.complete(&fake, cqn, 0x100, 2, 0, 0);
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(77));
        assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(78));
        assert_eq!(poll(&mut cq), None);
        assert_eq!(cq.garbage_completions(), 0);
        assert_eq!(rig.records(&fake, 0x100), (1, 1));
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

#[test]
fn shared_receives() {
    for issi in [0b01, 0b11] {
        with_device!(issi, |fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let mut attr = SrqAttr {
                max_wr: 5,
                max_sge: 2,
                srq_limit: 0,
            };
            let mut srq = pd.create_srq(&mut attr).unwrap();
            assert_eq!((attr.max_wr, attr.max_sge), (7, 3));
            let object = rig.lock().srqs[&srq.srqn().number()];
            assert_eq!(object.stride, 64);
            let cq = device.create_cq(CqInit::new(31)).unwrap();
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: Some(&srq),
                cap: cap(4, 4, 1, 0),
                sq_sig_all: true,
            };
            let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
            assert_eq!((qp.cap().max_recv_wr, qp.cap().max_recv_sge), (0, 0));
            let qpc = *rig.lock().qps[&0x100].create.qpc();
            assert_eq!(
                (qpc.rq_type(), qpc.srqn_rmpn_xrqn()),
                (1, srq.srqn().number())
            );
            to_rts(&mut qp);
            let mut cq = cq;
            let cqn = cq.cqn().number();
            assert_eq!(qp.recv_queue().post(0, &[SGE]), Err(PostError::WrongState));
            // The device follows the links; it takes them in the order of posting, completes them in another.
            let mut next_wr = 0u64;
            let mut position = 0u64;
            let mut held: Vec<(u16, u64)> = Vec::new();
            let link = |index: u64| {
                let bytes = fake.lock().dma_read(object.ring + index * 64, 4);
                u64::from(u16::from_be_bytes([bytes[2], bytes[3]]))
            };
            for round in 0..200u64 {
                while srq.post(next_wr, &[SGE]).is_ok() {
                    held.push((position as u16, next_wr));
                    position = link(position);
                    next_wr += 1;
                }
                assert_eq!(held.len(), 7, "the whole queue");
                assert_eq!(srq.post(0, &[SGE]), Err(PostError::QueueFull { limit: 7 }));
                let record = fake.lock().dma_read(object.record, 4);
                assert_eq!(record, ((next_wr & 0xffff) as u32).to_be_bytes());
                for step in 0..=(round % 7) {
                    let at = ((round * 5 + step * 3) % held.len() as u64) as usize;
                    let (index, id) = held.remove(at);
                    rig.complete(&fake, cqn, 0x100, 2, index, 0);
                    assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(id));
                    // A second completion of the same WQE is not believed.
                    rig.complete(&fake, cqn, 0x100, 2, index, 0);
                    assert_eq!(poll(&mut cq), None);
                }
            }
            let garbage = cq.garbage_completions();
            rig.complete(&fake, cqn, 0x100, 2, 8, 0);
            assert_eq!(
                (poll(&mut cq), cq.garbage_completions()),
                (None, garbage + 1)
            );

            // The limit.
            srq.arm_limit(3).unwrap();
            assert_eq!(
                srq.arm_limit(8),
                Err(SrqError::Limit {
                    asked: 8,
                    max_wr: 7
                })
            );
            assert!(!srq.take_limit_event());
            fake.event(Event::Queue {
                what: EventType::SrqLimit,
                queue: Queue::Srq(srq.srqn()),
            });
            device.poll().unwrap();
            assert!(srq.take_limit_event());
            assert!(!srq.take_limit_event());

            // A flushed receive, and one that the destroyed QP leaves behind: both come back.
            let (index, id) = held.remove(0);
            let mut flush = cqe(rig.lock().qps[&0x100].user_index, 0x100, 14, index, 0);
            flush[0x37] = 5;
            rig.cqe(&fake, cqn, flush);
            assert_eq!(
                poll(&mut cq).map(|wc| (wc.wr_id, wc.status)),
                Some((id, WcStatus::WrFlushErr))
            );
            let (index, _) = held.remove(0);
            rig.complete(&fake, cqn, 0x100, 2, index, 0);
            let (busy, error) = srq.destroy().unwrap_err();
            srq = busy;
            assert_eq!(error, SrqError::Busy { users: 1 });
            drop(qp);
            assert_eq!(poll(&mut cq), None);
            let mut free = 0;
            while srq
                .post_list(&[RecvWr {
                    wr_id: 0,
                    sges: &[SGE],
                }])
                .is_ok()
            {
                free += 1;
            }
            assert_eq!(free + held.len(), 7, "nothing is lost");
            srq.destroy().map_err(|(_, error)| error).unwrap();
        });
    }
}

/// What each transition carries, for a connection with everything set.
#[test]
fn transitions_carry_what_was_given() {
    with_device!(|fake, _rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(8)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: cap(4, 4, 1, 0),
            sq_sig_all: true,
        };
        let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            path_mtu: Mtu::B1024,
            rq_psn: 0x123456,
            sq_psn: 0x654321,
            dest_qp_num: Qpn::from_low_bits(0x777),
            max_rd_atomic: 5,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        attr.ah_attr.dmac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
        attr.ah_attr.dgid = bareverbs_core::Gid::from_ipv4([10, 0, 0, 2].into());
        attr.ah_attr.hop_limit = 64;
        attr.ah_attr.traffic_class = 0x6a;
        attr.ah_attr.flow_label = 0x12345;
        attr.ah_attr.sl = 3;
        let sent = |opcode| {
            let input = commands(&fake, opcode).pop().unwrap();
            *Init2rtrQpIn::ref_from_prefix(&input).unwrap().0
        };
        let row = |from, to| transition(QpKind::Rc, from, to).unwrap().required | QpAttrMask::STATE;

        qp.modify(&attr, row(QpState::Reset, QpState::Init))
            .unwrap();
        let init = sent(Opcode::Rst2initQp);
        // Reads and atomics wait for the number of responder resources.
        assert_eq!(
            (init.qpc().rwe(), init.qpc().rre(), init.qpc().rae()),
            (true, false, false)
        );
        assert_eq!(
            (
                init.opt_param_mask(),
                init.qpc().pm_state(),
                init.qpc().primary_address_path().vhca_port_num()
            ),
            (0, 3, 1)
        );
        assert_ne!(init.qpc().dbr_addr(), 0);

        attr.qp_state = QpState::Rtr;
        qp.modify(&attr, row(QpState::Init, QpState::Rtr)).unwrap();
        let rtr = sent(Opcode::Init2rtrQp);
        let (qpc, path) = (rtr.qpc(), rtr.qpc().primary_address_path());
        assert_eq!(
            (qpc.rwe(), qpc.rre(), qpc.rae(), qpc.atomic_mode()),
            (true, true, true, 1)
        );
        assert_eq!(rtr.opt_param_mask(), 0b1110);
        assert_eq!(
            (
                qpc.mtu(),
                qpc.log_msg_max(),
                qpc.remote_qpn(),
                qpc.next_rcv_psn()
            ),
            (3, 30, 0x777, 0x123456)
        );
        assert_eq!(
            (qpc.log_rra_max(), qpc.min_rnr_nak(), qpc.log_ack_req_freq()),
            (2, 12, 8)
        );
        assert_eq!(
            (
                path.rmac_47_32(),
                path.rmac_31_0(),
                path.eth_prio(),
                path.dscp()
            ),
            (0x0211, 0x2233_4455, 3, 0x1a)
        );
        assert_eq!(
            (
                path.hop_limit(),
                path.tclass(),
                path.flow_label(),
                path.udp_sport()
            ),
            (64, 0x6a, 0x12345, 58177)
        );
        assert_eq!(
            (path.grh(), path.rlid(), path.sl(), path.src_addr_index()),
            (false, 0, 0, 0)
        );
        assert_eq!(path.rgid_rip(), &attr.ah_attr.dgid.0);

        attr.qp_state = QpState::Rts;
        qp.modify(&attr, row(QpState::Rtr, QpState::Rts)).unwrap();
        let rts = sent(Opcode::Rtr2rtsQp);
        let qpc = rts.qpc();
        assert_eq!(
            (
                qpc.next_send_psn(),
                qpc.log_sra_max(),
                qpc.retry_count(),
                qpc.rnr_retry()
            ),
            (0x654321, 3, 6, 7)
        );
        assert_eq!(
            (
                qpc.primary_address_path().ack_timeout(),
                rts.opt_param_mask()
            ),
            (14, 0)
        );

        // Access alone, later: reads stay allowed, since the resources are known.
        let weaker = QpAttr {
            qp_access_flags: Access::REMOTE_READ,
            ..attr
        };
        qp.modify(&weaker, QpAttrMask::ACCESS_FLAGS).unwrap();
        let again = sent(Opcode::Rts2rtsQp);
        assert_eq!(
            (again.qpc().rwe(), again.qpc().rre(), again.opt_param_mask()),
            (false, true, 0b1110)
        );
        assert_eq!(qp.state(), QpState::Rts);
    });
}

#[test]
fn modify_refuses_by_name() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 8, true);
        let executed = device.commands_executed();
        let attr = QpAttr {
            qp_state: QpState::Init,
            ..QpAttr::DEFAULT
        };
        let error = qp.modify(&attr, QpAttrMask::STATE).unwrap_err();
        let none = TransitionError::NoSuchTransition {
            from: QpState::Rts,
            to: QpState::Init,
        };
        assert_eq!(error, ModifyError::Transition(none));
        let sqd = QpAttr {
            qp_state: QpState::Sqd,
            ..attr
        };
        let error = qp.modify(&sqd, QpAttrMask::STATE).unwrap_err();
        assert_eq!(
            error,
            ModifyError::NoCommand {
                from: QpState::Rts,
                to: QpState::Sqd
            }
        );
        let wrong = QpAttr {
            qp_state: QpState::Rts,
            cur_qp_state: QpState::Rtr,
            ..attr
        };
        let error = qp
            .modify(&wrong, QpAttrMask::STATE | QpAttrMask::CUR_STATE)
            .unwrap_err();
        assert_eq!(
            error,
            ModifyError::CurrentState {
                said: QpState::Rtr,
                is: QpState::Rts
            }
        );
        assert_eq!(
            device.commands_executed(),
            executed,
            "the firmware heard nothing of it"
        );
        let reset = QpAttr {
            qp_state: QpState::Reset,
            ..attr
        };
        qp.modify(&reset, QpAttrMask::STATE).unwrap();
        let row = transition(QpKind::Rc, QpState::Reset, QpState::Init)
            .unwrap()
            .required
            | QpAttrMask::STATE;
        qp.modify(&attr, row).unwrap();
        let mut rtr = QpAttr {
            qp_state: QpState::Rtr,
            ..attr
        };
        rtr.ah_attr.dmac = [2; 6];
        let row = transition(QpKind::Rc, QpState::Init, QpState::Rtr)
            .unwrap()
            .required
            | QpAttrMask::STATE;
        let refused = |qp: &mut Qp<'_, &Fake, Rc>, change: &dyn Fn(&mut QpAttr)| {
            let mut bad = rtr;
            change(&mut bad);
            let error = qp.modify(&bad, row).unwrap_err();
            assert_eq!(qp.state(), QpState::Init);
            format!("{error}")
        };
        assert!(refused(&mut qp, &|a| a.min_rnr_timer = 32).contains("MIN_RNR_TIMER"));
        assert!(refused(&mut qp, &|a| a.max_dest_rd_atomic = 17).contains("MAX_DEST_RD_ATOMIC"));
        assert!(refused(&mut qp, &|a| a.rq_psn = 1 << 24).contains("RQ_PSN"));
        assert!(refused(&mut qp, &|a| a.ah_attr.sgid_index = 3).contains("entry 3"));
        assert!(refused(&mut qp, &|a| a.ah_attr.dmac = [0; 6]).contains("MAC"));
        assert!(refused(&mut qp, &|a| a.ah_attr.port_num = 2).contains("AV"));
        // The firmware's own refusal keeps the state, too.
        rig.lock().instead.push((
            Opcode::Init2rtrQp,
            Action::Fail(Status::BadParameter, 0x1234),
        ));
        let error = qp.modify(&rtr, row).unwrap_err();
        assert!(matches!(error, ModifyError::Command(_)), "{error}");
        assert_eq!(qp.state(), QpState::Init);
        qp.modify(&rtr, row).unwrap();
        let _ = fake.live();
    });
}

#[test]
fn a_query_reads_the_context() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 8, true);
        let mut qpc = Qpc::ZERO;
        qpc.set_state(6)
            .set_mtu(3)
            .set_rre(true)
            .set_log_sra_max(3)
            .set_log_rra_max(2)
            .set_remote_qpn(0x777);
        qpc.set_retry_count(6)
            .set_rnr_retry(5)
            .set_min_rnr_nak(12)
            .set_next_send_psn(9)
            .set_next_rcv_psn(8)
            .set_q_key(7);
        qpc.primary_address_path_mut()
            .set_eth_prio(3)
            .set_rmac_47_32(0x0211)
            .set_rmac_31_0(0x2233_4455);
        rig.lock().queried = qpc.0.to_vec();
        let answer = qp.query().unwrap();
        let attr = answer.attr;
        assert_eq!(
            (attr.qp_state, attr.path_mtu, attr.qp_access_flags),
            (QpState::Err, Mtu::B1024, Access::REMOTE_READ)
        );
        assert_eq!(
            (
                attr.max_rd_atomic,
                attr.max_dest_rd_atomic,
                attr.dest_qp_num.number()
            ),
            (8, 4, 0x777)
        );
        assert_eq!(
            (attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer),
            (6, 5, 12)
        );
        assert_eq!(
            (attr.sq_psn, attr.rq_psn, attr.qkey, attr.ah_attr.sl),
            (9, 8, 7, 3)
        );
        assert_eq!(attr.ah_attr.dmac, [0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!((answer.cap, answer.sq_sig_all), (qp.cap(), true));
        assert_eq!(qp.state(), QpState::Err, "the device had moved it");
        rig.lock().queried[0] = 0xf0;
        assert!(qp.query().is_err(), "a state that does not exist");
    });
}

/// Each creation refused, undelivered and unanswered: a typed error, and everything comes back in the end.
#[test]
fn refused_creations_leave_nothing() {
    let actions = [Action::Fail(Status::LimitExceeded, 0xabc), Action::Drop];
    for opcode in [
        Opcode::AllocPd,
        Opcode::CreateCq,
        Opcode::CreateQp,
        Opcode::CreateMkey,
        Opcode::CreateRmp,
    ] {
        for action in &actions {
            with_device!(|fake, rig, device| {
                rig.lock().instead.push((opcode, action.clone()));
                let failed = create_everything(&device);
                assert!(failed.is_err(), "{opcode:?} {action:?}");
                assert!(rig.lock().instead.is_empty());
                create_everything(&device).expect("works the second time");
                let _ = fake.live();
            });
        }
    }
}

/// Each destruction refused or unanswered: memory that the device may still use stays until the device is closed.
#[test]
fn refused_destructions_keep_memory_until_close() {
    let actions = [Action::Fail(Status::ResourceBusy, 0xabc), Action::Drop];
    for opcode in [
        Opcode::DeallocPd,
        Opcode::DestroyCq,
        Opcode::DestroyQp,
        Opcode::DestroyMkey,
        Opcode::DestroyRmp,
    ] {
        for action in &actions {
            with_device!(|fake, rig, device| {
                let before = fake.live();
                rig.lock().instead.push((opcode, action.clone()));
                create_everything(&device).expect("created");
                assert!(rig.lock().instead.is_empty());
                if opcode != Opcode::DeallocPd {
                    assert!(device.bytes_quarantined() > 0, "{opcode:?} {action:?}");
                    assert!(fake.live() > before);
                }
            });
        }
    }
}

fn create_everything(device: &Device<'_, &Fake>) -> Result<(), String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let pd = device.alloc_pd().map_err(text)?;
    let _buffer = pd.alloc_buffer(64, Access::LOCAL_WRITE).map_err(text)?;
    let _srq = pd
        .create_srq(&mut SrqAttr {
            max_wr: 3,
            max_sge: 1,
            srq_limit: 0,
        })
        .map_err(text)?;
    let cq = device.create_cq(CqInit::new(8)).map_err(text)?;
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: cap(1, 1, 1, 0),
        sq_sig_all: true,
    };
    pd.create_qp::<Rc>(&mut init).map(|_| ()).map_err(text)
}

#[test]
fn memory_runs_out_at_each_allocation() {
    for budget in 0.. {
        let done;
        with_device!(|fake, _rig, device| {
            fake.lock().budget = budget;
            done = create_everything(&device).is_ok();
            fake.lock().budget = usize::MAX;
        });
        if done {
            assert!(budget > 3);
            return;
        }
    }
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

fn is_send<T: Send>() {}

/// Handles go to other threads.
#[test]
fn handles_are_send() {
    is_send::<Cq<'_, &Fake>>();
    is_send::<Qp<'_, &Fake, Rc>>();
    fn halves<T: QpType>() {
        is_send::<bareverbs_core::SendQueue<'_, &Fake, T>>();
        is_send::<bareverbs_core::RecvQueue<'_>>();
    }
    halves::<Rc>();
}
