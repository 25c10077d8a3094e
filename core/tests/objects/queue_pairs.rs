//! The commands of a QP, from its creation through every transition, and what it takes from a query's answer.

use bareverbs_core::qp::{TransitionError, transition};
use bareverbs_core::{
    Access, CqInit, CreateQpError, Gsi, ModifyError, Mtu, PostError, Qp, QpAttr, QpAttrMask,
    QpInitAttr, QpInitHandles, QpKind, QpState, Qpn, Rc, SendFlags, Uc, Ud,
};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::{Init2rtrQpIn, Qpc};
use bareverbs_firmware_cmds::status::Status;
use zerocopy::FromBytes;

use crate::rig::{cap, pair, to_rts};
use crate::support::Fake;
use crate::support::firmware::Action;
use crate::{SGE, commands, poll};

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
        // 10 of 128 bytes, rounded: 32 blocks; 8 receives of 64 bytes.
        assert_eq!(
            (qpc.log_sq_size(), qpc.log_rq_size(), qpc.log_rq_stride()),
            (5, 3, 2)
        );
        assert_eq!((qpc.no_sq(), qpc.rq_type(), qpc.uar_page()), (false, 0, 3));
        assert_eq!(qpc.dbr_addr(), object.ring + 8 * 64 + 32 * 64);
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

/// `qpc.st` as `mlx5_ifc.h` has it (`MLX5_QPC_ST_RC`, `_UC`, `_UD`, `_QP1`).
#[test]
fn a_type_that_is_a_value_gives_the_queue_of_that_type_alone() {
    with_device!(|fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(10)).unwrap();
        let handles = || QpInitHandles {
            send_cq: cq.handle(),
            recv_cq: cq.handle(),
            srq: None,
            cap: cap(4, 4, 1, 0),
            sq_sig_all: false,
        };
        let kinds = [
            (QpKind::Rc, 0),
            (QpKind::Uc, 1),
            (QpKind::Ud, 2),
            (QpKind::Gsi, 8),
        ];
        for (kind, service) in kinds {
            let mut qp = pd.create_dyn_qp_by_handles(kind, &mut handles()).unwrap();
            assert_eq!(
                rig.lock().qps[&qp.qpn().number()].create.qpc().st(),
                service
            );
            assert_eq!((qp.kind(), qp.state()), (kind, QpState::Reset));
            let queues = [
                (QpKind::Rc, qp.send_queue::<Rc>().is_some()),
                (QpKind::Uc, qp.send_queue::<Uc>().is_some()),
                (QpKind::Ud, qp.send_queue::<Ud>().is_some()),
                (QpKind::Gsi, qp.split::<Gsi>().is_some()),
                (QpKind::Ud, qp.as_qp_mut::<Ud>().is_some()),
            ];
            for (of, given) in queues {
                assert_eq!(given, of == kind, "{of:?} of {kind:?}");
            }
            let number = qp.qpn();
            let qp = match qp.into_qp::<Uc>() {
                Ok(typed) => {
                    assert_eq!(kind, QpKind::Uc);
                    typed.into_dyn()
                }
                Err(other) => {
                    assert_ne!(kind, QpKind::Uc);
                    other
                }
            };
            assert_eq!(qp.qpn(), number);
            qp.destroy().map_err(|(_, error)| error).unwrap();
        }
        for kind in [QpKind::XrcRecv, QpKind::Dct, QpKind::RawPacket] {
            let refusal = CreateQpError::OtherCall { kind };
            let refused = pd.create_dyn_qp_by_handles(kind, &mut handles());
            assert_eq!(refused.unwrap_err(), refusal);
        }
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

/// After RESET the QP starts afresh, and completions in the CQ from before are dropped.
#[test]
fn reset_drops_earlier_completions() {
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

/// Fields of each transition, for a connection with everything set.
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
            "the firmware got no command"
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

/// Queues that were swapped between two QPs stay usable when one of the QPs goes: its memory is kept.
#[test]
fn memory_of_swapped_queues_is_kept() {
    for (sends, receives) in [(true, true), (true, false), (false, true)] {
        with_device!(|fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let (first_cq, mut first) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, true);
            let (_cq, mut second) = pair::<Rc>(&device, &pd, cap(8, 8, 1, 0), 15, true);
            if sends {
                core::mem::swap(first.send_queue(), second.send_queue());
            }
            if receives {
                core::mem::swap(first.recv_queue(), second.recv_queue());
            }
            let attr = QpAttr {
                qp_state: QpState::Reset,
                ..QpAttr::DEFAULT
            };
            let refused = Err(ModifyError::QueuesSwapped);
            assert_eq!(first.modify(&attr, QpAttrMask::STATE), refused);
            assert_eq!(second.modify(&attr, QpAttrMask::STATE), refused);
            let kept = first.memory_len();
            let live = fake.live();
            if sends {
                drop(first);
            } else {
                first.destroy().unwrap();
            }
            first_cq.reap();
            assert_eq!(
                (fake.live(), device.bytes_quarantined()),
                (live, kept as u64)
            );
            // A new QP gets other memory, and the queues of the old one write to their own.
            let (_cq, mut third) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, true);
            let before = fake.freed_and_changed();
            for id in 0..4 {
                let mut batch = second.send_queue().batch();
                batch.send(id, SendFlags::empty(), SGE).unwrap();
                drop(batch);
                second.recv_queue().post(id, &[SGE]).unwrap();
                third.recv_queue().post(id, &[SGE]).unwrap();
            }
            assert_eq!(fake.freed_and_changed(), before);
            let _ = &rig;
        });
    }
}

/// Queues that were swapped and swapped back are as before.
#[test]
fn queues_swapped_back_are_the_qps_own() {
    with_device!(|fake, _rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (first_cq, mut first) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, true);
        let (_cq, mut second) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 15, true);
        core::mem::swap(first.send_queue(), second.send_queue());
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        let refused = first.modify(&attr, QpAttrMask::STATE);
        assert_eq!(refused, Err(ModifyError::QueuesSwapped));
        core::mem::swap(first.send_queue(), second.send_queue());
        first.modify(&attr, QpAttrMask::STATE).unwrap();
        let (live, len) = (fake.live(), first.memory_len());
        drop(first);
        first_cq.reap();
        assert_eq!((fake.live(), device.bytes_quarantined()), (live - len, 0));
    });
}
