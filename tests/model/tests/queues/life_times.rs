//! Refusals over an object's life: creating what does not fit, and destroying what is in use.

use bareverbs_firmware_cmds::cq::DestroyCqIn;
use bareverbs_firmware_cmds::domain::DeallocPdIn;
use bareverbs_firmware_cmds::eq::DestroyEqIn;
use bareverbs_firmware_cmds::qp::DestroyQpIn;
use bareverbs_firmware_cmds::uar::DeallocUarIn;
use connectx_model::Syndrome;

use crate::common::queues::*;
use crate::refused;

#[test]
fn what_is_in_use_cannot_be_destroyed() {
    let mut pair = Pair::new();
    let [(qp, cq), _] = pair.connect(RC);
    let node = &mut pair.a;
    let mut cq_in = DestroyCqIn::new();
    cq_in.set_cqn(cq.number);
    let mut pd_in = DeallocPdIn::new();
    pd_in.set_pd(pair.pd[0]);
    let mut uar_in = DeallocUarIn::new();
    uar_in.set_uar(node.uar);
    let mut eq_in = DestroyEqIn::new();
    eq_in.set_eq_number(node.events[1].number as u8);
    let mut qp_in = DestroyQpIn::new();
    qp_in.set_qpn(qp.number);
    assert_eq!(node.command(&cq_in).err(), Some(refused(Syndrome::CqBusy)));
    assert_eq!(node.command(&pd_in).err(), Some(refused(Syndrome::PdBusy)));
    assert_eq!(
        node.command(&uar_in).err(),
        Some(refused(Syndrome::UarBusy))
    );
    assert_eq!(node.command(&eq_in).err(), Some(refused(Syndrome::EqBusy)));
    node.command(&qp_in).unwrap();
    assert_eq!(
        node.command(&qp_in).err(),
        Some(refused(Syndrome::QpUnknown))
    );
    node.command(&cq_in).unwrap();
    assert_eq!(
        node.command(&cq_in).err(),
        Some(refused(Syndrome::CqUnknown))
    );
    node.command(&pd_in).unwrap();
    for at in [0, 1] {
        eq_in.set_eq_number(node.events[at].number as u8);
        node.command(&eq_in).unwrap();
    }
    node.command(&uar_in).unwrap();
    assert_eq!(node.model.objects(), connectx_model::Objects::default());
    node.shut_down();
    assert_eq!(node.model.leaks(), []);
}

#[test]
fn what_cannot_be_created_is_refused_with_a_reason() {
    let mut pair = Pair::new();
    let cq = pair.a.create_cq(4, 1);
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    };
    type Change = fn(&mut bareverbs_firmware_cmds::qp::Qpc);
    let cases: [(Change, Syndrome); 10] = [
        (
            |qpc| {
                qpc.set_pd(0xfff);
            },
            Syndrome::QpPd,
        ),
        (
            |qpc| {
                qpc.set_cqn_snd(1);
            },
            Syndrome::QpSendCq,
        ),
        (
            |qpc| {
                qpc.set_cqn_rcv(1);
            },
            Syndrome::QpReceiveCq,
        ),
        (
            |qpc| {
                qpc.set_uar_page(1);
            },
            Syndrome::QpUar,
        ),
        (
            |qpc| {
                qpc.set_st(6);
            },
            Syndrome::QpType,
        ),
        (
            |qpc| {
                qpc.set_rq_type(1).set_srqn_rmpn_xrqn(77);
            },
            Syndrome::QpSrq,
        ),
        (
            |qpc| {
                qpc.set_dbr_addr(0x10);
            },
            Syndrome::QpRecord,
        ),
        (
            |qpc| {
                qpc.set_log_sq_size(9);
            },
            Syndrome::QpPages,
        ),
        (
            |qpc| {
                qpc.set_pm_state(0);
            },
            Syndrome::QpMigration,
        ),
        (
            |qpc| {
                qpc.set_state(1);
            },
            Syndrome::QpStateGiven,
        ),
    ];
    for (change, syndrome) in cases {
        assert_eq!(
            pair.a.try_create_qp(plan, change).err(),
            Some(refused(syndrome)),
            "{syndrome:?}"
        );
    }
    assert_eq!(pair.a.model.objects().qps, 0);
    let gsi = pair.a.create_qp(QpPlan { st: QP1, ..plan });
    assert!(gsi.number > 1);
    assert_eq!(
        pair.a
            .try_create_qp(QpPlan { st: QP1, ..plan }, |_| {})
            .err(),
        Some(refused(Syndrome::QpGsiTaken))
    );
}
