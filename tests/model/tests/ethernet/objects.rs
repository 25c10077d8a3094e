//! Commands on the objects of network queues that are refused: create, modify and destroy.

use crate::common::Failure;
use crate::lab::*;
use bareverbs_firmware_cmds::counter::DeallocQCounterIn;
use bareverbs_firmware_cmds::cq::DestroyCqIn;
use bareverbs_firmware_cmds::domain::{DeallocPdIn, DeallocTransportDomainIn};
use bareverbs_firmware_cmds::rq::{DestroyRqIn, ModifyRqIn, Rqc};
use bareverbs_firmware_cmds::sq::{DestroySqIn, ModifySqIn, Sqc};
use bareverbs_firmware_cmds::tir::{
    DestroyRqtIn, DestroyTirIn, ModifyRqtIn, ModifyTirIn, QueryRqtIn, QueryTirIn, Tirc,
};
use bareverbs_firmware_cmds::tis::{CreateTisIn, DestroyTisIn, ModifyTisIn, QueryTisIn, Tisc};
use connectx_model::{Config, Leak, ObjectKind, Syndrome};

#[test]
fn send_queues() {
    let mut lab = Lab::new();
    type Change = fn(&mut Sqc);
    let cases: &[(Syndrome, Change)] = &[
        (Syndrome::SqState, |c| {
            c.set_state(RDY);
        }),
        (Syndrome::SqFeature, |c| {
            c.set_hairpin(true);
        }),
        (Syndrome::SqFeature, |c| {
            c.set_allow_swp(true);
        }),
        (Syndrome::SqFeature, |c| {
            c.set_packet_pacing_rate_limit_index(1);
        }),
        (Syndrome::SqFeature, |c| {
            c.set_qos_queue_group_id(1);
        }),
        (Syndrome::SqUmem, |c| {
            c.wq_mut().set_wq_umem_valid(true);
        }),
        (Syndrome::SqType, |c| {
            c.wq_mut().set_wq_type(0);
        }),
        (Syndrome::SqType, |c| {
            c.wq_mut().set_log_wq_stride(7);
        }),
        (Syndrome::SqSize, |c| {
            c.wq_mut().set_log_wq_sz(16);
        }),
        (Syndrome::SqPages, |c| {
            c.wq_mut().set_log_wq_sz(15);
        }),
        (Syndrome::SqCq, |c| {
            c.set_cqn(0xfff);
        }),
        (Syndrome::SqPd, |c| {
            c.wq_mut().set_pd(0xfff);
        }),
        (Syndrome::SqUar, |c| {
            c.wq_mut().set_uar_page(0xfff);
        }),
        (Syndrome::SqTis, |c| {
            c.set_tis_num_0(0xfff);
        }),
        (Syndrome::SqTis, |c| {
            c.set_tis_lst_sz(2);
        }),
        (Syndrome::SqRecord, |c| {
            let record = c.wq().dbr_addr();
            c.wq_mut().set_dbr_addr(record + 4);
        }),
        (Syndrome::SqRecord, |c| {
            c.wq_mut().set_dbr_addr(0);
        }),
    ];
    for &(syndrome, change) in cases {
        let made = lab.try_sq(change).map(|queue| queue.number);
        assert_eq!(made, Err(refused(syndrome)));
    }
    // Without a TIS a queue is good for NOPs, and for nothing else.
    lab.sq = lab
        .try_sq(|c| {
            c.set_tis_lst_sz(0).set_tis_num_0(0);
        })
        .unwrap();
    lab.move_sq(RST, RDY).unwrap();
    lab.post(NOP, 8, &[]);
    lab.ring();
    assert_eq!(lab.sent().unwrap().opcode(), SENT);
    lab.send(0, &udp_frame(OTHER, OWN, (1, 2), &[7; 100]));
    assert_eq!(lab.sent().unwrap().syndrome(), OPERATION);
}

#[test]
fn receive_queues() {
    let mut lab = Lab::new();
    type Change = fn(&mut Rqc);
    let cases: &[(Syndrome, Change)] = &[
        (Syndrome::RqState, |c| {
            c.set_state(RDY);
        }),
        (Syndrome::RqFeature, |c| {
            c.set_hairpin(true);
        }),
        (Syndrome::RqFeature, |c| {
            c.set_scatter_fcs(true);
        }),
        (Syndrome::RqFeature, |c| {
            c.set_delay_drop_en(true);
        }),
        (Syndrome::RqFeature, |c| {
            c.wq_mut().set_shampo_enable(true);
        }),
        (Syndrome::RqUmem, |c| {
            c.wq_mut().set_dbr_umem_valid(true);
        }),
        (Syndrome::RqType, |c| {
            c.wq_mut().set_wq_type(4);
        }),
        (Syndrome::RqType, |c| {
            c.set_mem_rq_type(2);
        }),
        (Syndrome::RqStride, |c| {
            c.wq_mut().set_log_wq_stride(3);
        }),
        (Syndrome::RqStride, |c| {
            c.wq_mut().set_wq_type(0).set_log_wq_stride(4);
        }),
        (Syndrome::RqStride, |c| {
            c.wq_mut().set_log_wq_stride(12);
        }),
        (Syndrome::RqSize, |c| {
            c.wq_mut().set_log_wq_sz(16);
        }),
        (Syndrome::RqPages, |c| {
            c.wq_mut().set_log_wq_sz(15);
        }),
        (Syndrome::RqCq, |c| {
            c.set_cqn(0xfff);
        }),
        (Syndrome::RqPd, |c| {
            c.wq_mut().set_pd(0xfff);
        }),
        (Syndrome::RqPool, |c| {
            c.set_mem_rq_type(1).set_rmpn(0xfff);
        }),
        (Syndrome::RqCounter, |c| {
            c.set_counter_set_id(0xee);
        }),
        (Syndrome::RqRecord, |c| {
            c.wq_mut().set_dbr_addr(0);
        }),
    ];
    for &(syndrome, change) in cases {
        let made = lab.try_rq(change).map(|queue| queue.number);
        assert_eq!(made, Err(refused(syndrome)));
    }
}

#[test]
fn states_follow_each_other() {
    let mut lab = Lab::new();
    let wrong_current = [
        (Syndrome::SqCurrentState, Syndrome::RqCurrentState),
        (Syndrome::SqNextState, Syndrome::RqNextState),
    ];
    // Both queues are ready.
    assert_eq!(lab.move_sq(RST, RDY), Err(refused(wrong_current[0].0)));
    assert_eq!(lab.move_rq(RST, RDY), Err(refused(wrong_current[0].1)));
    assert_eq!(lab.move_sq(RDY, 2), Err(refused(wrong_current[1].0)));
    assert_eq!(lab.move_rq(RDY, 2), Err(refused(wrong_current[1].1)));
    for (from, to) in [
        (RDY, RDY),
        (RDY, ERR),
        (ERR, ERR),
        (ERR, RST),
        (RST, RST),
        (RST, ERR),
    ] {
        lab.move_sq(from, to).unwrap();
        lab.move_rq(from, to).unwrap();
        assert_eq!(
            (lab.sq_context().state(), lab.rq_context().state()),
            (to, to)
        );
    }
    assert_eq!(lab.move_sq(ERR, RDY), Err(refused(wrong_current[1].0)));
    assert_eq!(lab.move_rq(ERR, RDY), Err(refused(wrong_current[1].1)));
    let mut modify = ModifySqIn::new();
    modify
        .set_sqn(lab.sq.number)
        .set_sq_state(ERR)
        .set_modify_bitmask(1);
    assert_eq!(
        lab.node.command(&modify).map(drop),
        Err(refused(Syndrome::SqModifyFields))
    );
    let mut modify = ModifyRqIn::new();
    modify
        .set_rqn(lab.rq.number)
        .set_rq_state(ERR)
        .set_modify_bitmask(1 << 2);
    assert_eq!(
        lab.node.command(&modify).map(drop),
        Err(refused(Syndrome::RqModifyFields))
    );
}

#[test]
fn transport_interfaces() {
    let mut lab = Lab::new();
    let tis = |lab: &mut Lab, change: fn(&mut Tisc)| {
        let mut create = CreateTisIn::new();
        create.ctx_mut().set_transport_domain(lab.domain);
        change(create.ctx_mut());
        lab.node.command(&create).map(|output| output.tisn())
    };
    let no = |syndrome| Err(refused(syndrome));
    assert_eq!(
        tis(&mut lab, |c| {
            c.set_transport_domain(0xfff);
        }),
        no(Syndrome::TisDomain)
    );
    assert_eq!(
        tis(&mut lab, |c| {
            c.set_tls_en(true);
        }),
        no(Syndrome::TisFeature)
    );
    let number = tis(&mut lab, |c| {
        c.set_prio(14);
    })
    .unwrap();
    let mut modify = ModifyTisIn::new();
    modify.set_tisn(number).bitmask_mut().set_prio(true);
    modify.ctx_mut().set_prio(4);
    lab.node.command(&modify).unwrap();
    let mut query = QueryTisIn::new();
    query.set_tisn(number);
    let context = *lab.node.command(&query).unwrap().tis_context();
    assert_eq!(
        (context.prio(), context.transport_domain()),
        (4, lab.domain)
    );

    type Change = fn(&mut Tirc);
    let cases: &[(Syndrome, Change)] = &[
        (Syndrome::TirDomain, |c| {
            c.set_transport_domain(0xfff);
        }),
        (Syndrome::TirFeature, |c| {
            c.set_packet_merge_mask(1);
        }),
        (Syndrome::TirFeature, |c| {
            c.set_tls_en(true);
        }),
        (Syndrome::TirQueue, |c| {
            c.set_inline_rqn(0xfff);
        }),
        (Syndrome::TirTable, |c| {
            c.set_disp_type(1).set_indirect_table(0xfff);
        }),
        (Syndrome::TirType, |c| {
            c.set_disp_type(2);
        }),
        (Syndrome::TirHash, |c| {
            c.set_rx_hash_fn(3);
        }),
        (Syndrome::TirHash, |c| {
            c.set_rx_hash_fn(2);
        }),
        (Syndrome::TirHash, |c| {
            c.rx_hash_field_selector_outer_mut()
                .set_selected_fields(1 << 5);
        }),
    ];
    for &(syndrome, change) in cases {
        let rq = lab.rq.number;
        let made = lab.try_tir(|context| {
            context.set_inline_rqn(rq);
            change(context);
        });
        assert_eq!(made, no(syndrome));
    }
    let mut modify = ModifyTirIn::new();
    modify.set_tirn(lab.tir).bitmask_mut().set_hash(true);
    assert_eq!(
        lab.node.command(&modify).map(drop),
        Err(refused(Syndrome::TirHash))
    );
}

/// DPDK's driver makes the TIR of the packets that it drops before it has made its first send queue, and with it the
/// transport domain (`mlx5_devx_tir_attr_set`, `mlx5_txq_devx_obj_new`): it names domain 0 then, which the card takes.
#[test]
fn a_tir_needs_no_domain() {
    let mut lab = Lab::new();
    let table = lab.try_rqt(&[lab.rq.number], 1).unwrap();
    let tir = lab.try_tir(|context| {
        context
            .set_transport_domain(0)
            .set_disp_type(1)
            .set_rx_hash_fn(2)
            .set_indirect_table(table);
    });
    let mut query = QueryTirIn::new();
    query.set_tirn(tir.unwrap());
    let context = *lab.node.command(&query).unwrap().tir_context();
    assert_eq!(context.transport_domain(), 0);
    // Number 0 is not one that can be had.
    assert_ne!(lab.domain, 0);
}

#[test]
fn tables_of_queues() {
    let mut lab = Lab::new();
    let rq = lab.rq.number;
    let no = |syndrome| Err(refused(syndrome));
    assert_eq!(lab.try_rqt(&[rq, rq], 1), no(Syndrome::RqtSize));
    assert_eq!(lab.try_rqt(&[], 1), no(Syndrome::RqtSize));
    assert_eq!(lab.try_rqt(&[rq], 4096), no(Syndrome::RqtSize));
    assert_eq!(lab.try_rqt(&[rq, 0xfff], 2), no(Syndrome::RqtQueue));
    let table = lab.try_rqt(&[rq; 3], 4).unwrap();
    let mut query = QueryRqtIn::new();
    query.set_rqtn(table);
    let (output, list) = lab.node.command_with(&query, &[], 12).unwrap();
    assert_eq!(output.rqt_context().rqt_actual_size(), 3);
    assert_eq!(list, [rq.to_be_bytes(); 3].concat());
    let mut modify = ModifyRqtIn::new();
    modify.set_rqtn(table).bitmask_mut().set_rqn_list(true);
    modify.ctx_mut().set_rqt_actual_size(5);
    let list = [rq.to_be_bytes(); 5].concat();
    let made = lab.node.command_with(&modify, &list, 0).map(drop);
    assert_eq!(made, Err(refused(Syndrome::RqtSize)));
    let made = lab.node.command_with(&modify, &list[..16], 0).map(drop);
    assert_eq!(made, Err(refused(Syndrome::RqtList)));
}

/// An object cannot be destroyed while another one refers to it.
#[test]
fn what_is_in_use_stays() {
    let mut lab = Lab::new();
    let rq = lab.rq.number;
    let table = lab.try_rqt(&[rq, rq], 2).unwrap();
    let tir = lab
        .try_tir(|context| {
            context.set_disp_type(1).set_indirect_table(table);
        })
        .unwrap();
    macro_rules! command {
        ($Command:ident, $set:ident, $number:expr) => {{
            let mut command = $Command::new();
            command.$set($number);
            lab.node.command(&command).map(drop)
        }};
    }
    let busy = |result: Result<(), Failure>| {
        assert!(
            matches!(result, Err(Failure::Status(6, _))),
            "not busy: {result:x?}"
        );
    };
    busy(command!(DestroyRqIn, set_rqn, rq));
    busy(command!(DestroyRqtIn, set_rqtn, table));
    busy(command!(DestroyTirIn, set_tirn, lab.tir));
    busy(command!(DestroyTisIn, set_tisn, lab.tis));
    busy(command!(DestroyCqIn, set_cqn, lab.sends.number));
    busy(command!(DestroyCqIn, set_cqn, lab.receives.number));
    busy(command!(DeallocPdIn, set_pd, lab.pd));
    busy(command!(
        DeallocTransportDomainIn,
        set_transport_domain,
        lab.domain
    ));
    busy(command!(DeallocQCounterIn, set_counter_set_id, lab.counter));
    command!(DestroyTirIn, set_tirn, tir).unwrap();
    command!(DestroyRqtIn, set_rqtn, table).unwrap();
    command!(DestroySqIn, set_sqn, lab.sq.number).unwrap();
    command!(DestroyTisIn, set_tisn, lab.tis).unwrap();
    command!(DestroyCqIn, set_cqn, lab.sends.number).unwrap();
    assert_eq!(
        command!(DestroySqIn, set_sqn, lab.sq.number),
        Err(refused(Syndrome::SqUnknown))
    );
    let mut query = QueryTirIn::new();
    query.set_tirn(tir);
    assert_eq!(
        lab.node.command(&query).map(drop),
        Err(refused(Syndrome::TirUnknown))
    );
}

#[test]
fn what_is_left_behind_is_reported() {
    let mut lab = Lab::new();
    let table = lab.try_rqt(&[lab.rq.number], 1).unwrap();
    lab.node.shut_down();
    let has = |kind, number| lab.node.model.leaks().contains(&Leak { kind, number });
    assert!(has(ObjectKind::Tis, lab.tis));
    assert!(has(ObjectKind::Tir, lab.tir));
    assert!(has(ObjectKind::Rqt, table));
    assert!(has(ObjectKind::Sq, lab.sq.number));
    assert!(has(ObjectKind::Rq, lab.rq.number));
}

#[test]
fn a_card_can_be_without_network_queues() {
    let mut node = crate::common::Node::new(Config::new(1).without_netdev());
    node.initialize();
    let mut query = bareverbs_firmware_cmds::caps::QueryHcaCapIn::new();
    for group in [1, 7] {
        query.set_op_mod(group << 1 | 1);
        assert!(node.command_with(&query, &[], 0x1000).is_err());
    }
}
