//! Violations of the interface are refused or have no effect: objects, sizes and operations beyond the capabilities, and queues
//! that are not where they have to be.

use crate::common::queues::{
    ALL, Pair, QpPlan, RC, SIGNALED, UC, UD, data_segment, inline_segment, remote_segment,
};
use crate::common::{Failure, Node, page_list};
use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::cq::{Cqc, CreateCqIn, ModifyCqIn};
use bareverbs_firmware_cmds::domain::AllocXrcdIn;
use bareverbs_firmware_cmds::eq::CreateEqIn;
use bareverbs_firmware_cmds::qp::{CreateQpIn, Init2initQpIn, Qpc, Rst2initQpIn};
use bareverbs_firmware_cmds::rq::CreateRqIn;
use bareverbs_firmware_cmds::srq::{CreateRmpIn, CreateXrcSrqIn};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use connectx_model::{Config, Syndrome};

const XRC: u8 = 3;
const SEND: u8 = 0x0a;
const RDMA_WRITE: u8 = 0x08;
const COMPARE_SWAP: u8 = 0x11;
const FETCH_ADD: u8 = 0x12;
/// Opcode of a send completion with an error, and its syndrome.
const SEND_FAILED: u8 = 0xd;
const LOCAL_QP_OPERATION: u8 = 2;

type Change<T> = fn(&mut T);

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// The usual card but for some capabilities.
fn card(unit: u8, change: impl Fn(&mut HcaCap)) -> Config {
    let mut config = Config::new(unit);
    change(&mut config.general);
    change(&mut config.general_max);
    config
}

fn pair(change: impl Fn(&mut HcaCap)) -> Pair {
    Pair::of([card(1, change), Config::new(2)])
}

fn try_qp(pair: &mut Pair, st: u8, change: impl FnOnce(&mut Qpc)) -> Result<u32, Failure> {
    let cq = pair.a.create_cq(4, 1).number;
    let plan = QpPlan {
        st,
        pd: pair.pd[0],
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        user_index: 0,
    };
    pair.a.try_create_qp(plan, change).map(|qp| qp.number)
}

fn try_cq(node: &mut Node, change: impl FnOnce(&mut Cqc)) -> Result<u32, Failure> {
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 8);
    let mut create = CreateCqIn::new();
    let context = create.cq_context_mut();
    context
        .set_log_cq_size(4)
        .set_uar_page(node.uar)
        .set_c_eqn_or_apu_element(node.events[1].number)
        .set_dbr_addr(record);
    change(context);
    let (output, _) = node.command_with(&create, &page_list(ring, 1024), 0)?;
    Ok(output.cqn())
}

#[test]
fn services_that_the_card_lacks_are_refused() {
    let lacks: [(u8, Change<HcaCap>); 4] = [
        (RC, |caps| _ = caps.set_rc(false)),
        (UC, |caps| _ = caps.set_uc(false)),
        (UD, |caps| _ = caps.set_ud(false)),
        (XRC, |caps| _ = caps.set_xrc(false)),
    ];
    for (st, lacks) in lacks {
        let answer = try_qp(&mut pair(lacks), st, |_| ());
        assert_eq!(answer, Err(refused(Syndrome::QpType)), "type {st}");
    }
    let mut pair = pair(|caps| _ = caps.set_xrc(false));
    let answer = pair.a.command(&AllocXrcdIn::new()).err();
    assert_eq!(answer, Some(refused(Syndrome::XrcdUnsupported)));
    let answer = try_xrc_srq(&mut pair, |_| ());
    assert_eq!(answer, Err(refused(Syndrome::SrqXrcUnsupported)));
}

/// Of 16 WQEs of 64 bytes, in XRC domain 0.
fn try_xrc_srq(pair: &mut Pair, change: impl FnOnce(&mut CreateXrcSrqIn)) -> Result<u32, Failure> {
    let cq = pair.a.create_cq(4, 1).number;
    let ring = pair.a.host.alloc(8192, 4096);
    let record = pair.a.host.alloc(8, 8);
    let mut create = CreateXrcSrqIn::new();
    create
        .xrc_srq_context_entry_mut()
        .set_log_xrc_srq_size(4)
        .set_log_rq_stride(2)
        .set_cqn(cq)
        .set_pd(pair.pd[0])
        .set_db_record_addr_h((record >> 32) as u32)
        .set_db_record_addr_l((record as u32) >> 2);
    change(&mut create);
    let (output, _) = pair.a.command_with(&create, &page_list(ring, 8192), 0)?;
    Ok(output.xrc_srqn())
}

#[test]
fn cyclic_shared_queues_need_their_capability() {
    let mut pair = pair(|caps| _ = caps.set_basic_cyclic_rcv_wqe(false));
    let xrcd = pair.a.command(&AllocXrcdIn::new()).unwrap().xrcd();
    let answer = try_xrc_srq(&mut pair, |create| {
        create
            .xrc_srq_context_entry_mut()
            .set_xrcd(xrcd)
            .set_basic_cyclic_rcv_wqe(true);
    });
    assert_eq!(answer, Err(refused(Syndrome::SrqCyclic)));
    try_xrc_srq(&mut pair, |create| {
        create.xrc_srq_context_entry_mut().set_xrcd(xrcd);
    })
    .unwrap();
}

#[test]
fn queues_beyond_the_largest_are_refused() {
    let mut pair = pair(|caps| {
        caps.set_log_max_qp_sz(6)
            .set_log_max_cq_sz(5)
            .set_log_max_eq_sz(7)
            .set_log_max_srq_sz(4)
            .set_log_max_wq_sz(4);
    });
    try_qp(&mut pair, RC, |_| ()).unwrap();
    for change in [
        |qpc: &mut Qpc| _ = qpc.set_log_sq_size(7),
        |qpc: &mut Qpc| _ = qpc.set_log_rq_size(7),
    ] {
        let answer = try_qp(&mut pair, RC, change);
        assert_eq!(answer, Err(refused(Syndrome::QpSize)));
    }
    let answer = try_cq(&mut pair.a, |context| _ = context.set_log_cq_size(6));
    assert_eq!(answer, Err(refused(Syndrome::CqSize)));
    let mut create = CreateEqIn::new();
    create.eq_context_entry_mut().set_log_eq_size(8);
    let answer = pair.a.command(&create).err();
    assert_eq!(answer, Some(refused(Syndrome::EqSize)));
    let answer = try_xrc_srq(&mut pair, |create| {
        create.xrc_srq_context_entry_mut().set_log_xrc_srq_size(5);
    });
    assert_eq!(answer, Err(refused(Syndrome::SrqSize)));
    let answer = try_rq(&mut pair, 4, 5);
    assert_eq!(answer, Err(refused(Syndrome::RqSize)));
}

fn try_rq(pair: &mut Pair, log_stride: u8, log_size: u8) -> Result<u32, Failure> {
    let cq = pair.a.create_cq(4, 1).number;
    let ring = pair.a.host.alloc(16384, 4096);
    let record = pair.a.host.alloc(8, 8);
    let mut create = CreateRqIn::new();
    let context = create.ctx_mut();
    context.set_cqn(cq);
    context
        .wq_mut()
        .set_wq_type(1)
        .set_pd(pair.pd[0])
        .set_dbr_addr(record)
        .set_log_wq_stride(log_stride)
        .set_log_wq_sz(log_size);
    let (output, _) = pair.a.command_with(&create, &page_list(ring, 16384), 0)?;
    Ok(output.rqn())
}

/// `max_wqe_sz_rq` is 512 bytes.
#[test]
fn receive_wqes_beyond_the_longest_are_refused() {
    let mut pair = Pair::new();
    let stride = |log_stride: u8| {
        move |qpc: &mut Qpc| {
            qpc.set_log_rq_stride(log_stride).set_log_rq_size(2);
        }
    };
    try_qp(&mut pair, RC, stride(5)).unwrap();
    let answer = try_qp(&mut pair, RC, stride(6));
    assert_eq!(answer, Err(refused(Syndrome::QpStride)));
    // Without a receive queue the field means nothing.
    try_qp(&mut pair, RC, |qpc| {
        qpc.set_rq_type(3).set_log_rq_stride(7);
    })
    .unwrap();
    try_rq(&mut pair, 9, 2).unwrap();
    let answer = try_rq(&mut pair, 10, 2);
    assert_eq!(answer, Err(refused(Syndrome::RqWqeSize)));
    let mut create = CreateRmpIn::new();
    create.ctx_mut().set_state(1);
    create
        .ctx_mut()
        .wq_mut()
        .set_pd(pair.pd[0])
        .set_log_wq_stride(10);
    let answer = pair.a.command(&create).err();
    assert_eq!(answer, Some(refused(Syndrome::SrqWqeSize)));
}

#[test]
fn send_wqes_beyond_the_longest_fail() {
    let mut pair = pair(|caps| _ = caps.set_max_wqe_sz_sq(128));
    let [(mut qp, mut cq), _] = pair.connect(RC);
    pair.a
        .post_send(&mut qp, SEND, SIGNALED, 0, &inline_segment(&[7; 124]));
    pair.a.ring_send(&qp);
    pair.run();
    let cqe = pair.a.poll(&mut cq).unwrap();
    let failed = (SEND_FAILED, LOCAL_QP_OPERATION);
    assert_eq!((cqe.opcode, cqe.syndrome), failed);
}

#[test]
fn a_key_of_more_than_the_longest_region_is_refused() {
    let mut pair = pair(|caps| _ = caps.set_log_max_mrw_sz(13));
    let memory = pair.a.host.alloc(4 * 4096, 4096);
    let pd = pair.pd[0];
    pair.a.register(pd, memory, memory, 8192, ALL);
    let answer = pair.a.try_register(pd, memory, memory, 8193, ALL);
    assert_eq!(answer, Err(refused(Syndrome::MkeyLength)));
}

#[test]
fn completion_queues_beyond_the_capabilities_are_refused() {
    let mut pair = pair(|caps| _ = caps.set_cq_oi(false));
    let node = &mut pair.a;
    let asks: [(Change<Cqc>, Syndrome); 3] = [
        (|cq| _ = cq.set_cq_period_mode(1), Syndrome::CqPeriodMode),
        (
            |cq| _ = cq.set_scqe_break_moderation_en(true),
            Syndrome::CqSolicitedBreak,
        ),
        (|cq| _ = cq.set_oi(true), Syndrome::CqIgnoreOverrun),
    ];
    for (ask, syndrome) in asks {
        assert_eq!(try_cq(node, ask), Err(refused(syndrome)));
    }
    let cqn = try_cq(node, |_| ()).unwrap();
    let eqn = node.events[0].number;
    let modify = |fields: u32| {
        let mut modify = ModifyCqIn::new();
        modify
            .set_cqn(cqn)
            .set_modify_field_select_resize_field_select(fields)
            .cq_context_mut()
            .set_oi(true)
            .set_cq_period_mode(1)
            .set_c_eqn_or_apu_element(eqn);
        modify
    };
    for (field, syndrome) in [
        (2, Syndrome::CqModifyOverrun),
        (3, Syndrome::CqRemapUnsupported),
        (4, Syndrome::CqPeriodMode),
    ] {
        let answer = node.command(&modify(1 << field)).err();
        assert_eq!(answer, Some(refused(syndrome)));
    }
}

/// A card whose QPs do not do atomics, or not this one.
fn atomic_card(unit: u8, operations: u16, size: u16) -> Config {
    let mut config = Config::new(unit);
    config
        .atomic
        .set_atomic_operations(operations)
        .set_atomic_size_qp(size);
    config
}

#[test]
fn atomics_of_the_peer_need_their_capability() {
    let without = card(1, |caps| _ = caps.set_atomic(false));
    for config in [without, atomic_card(1, 0, 8), atomic_card(1, 3, 4)] {
        let mut pair = Pair::of([config, Config::new(2)]);
        let qpn = try_qp(&mut pair, RC, |_| ()).unwrap();
        let mut init = Rst2initQpIn::new();
        init.set_qpn(qpn);
        init.qpc_mut()
            .set_pm_state(3)
            .set_rae(true)
            .primary_address_path_mut()
            .set_vhca_port_num(1);
        let answer = pair.a.command(&init).err();
        assert_eq!(answer, Some(refused(Syndrome::QpAtomic)));
        init.qpc_mut().set_rae(false);
        pair.a.command(&init).unwrap();
        let mut again = Init2initQpIn::new();
        again.set_qpn(qpn).set_opt_param_mask(1 << 2);
        again.qpc_mut().set_pm_state(3).set_rae(true);
        let answer = pair.a.command(&again).err();
        assert_eq!(answer, Some(refused(Syndrome::QpAtomic)));
    }
}

#[test]
fn atomic_wqes_that_the_card_lacks_fail() {
    let asks = [
        (0, 8, COMPARE_SWAP, false),
        (2, 8, COMPARE_SWAP, false),
        (1, 8, FETCH_ADD, false),
        (3, 4, FETCH_ADD, false),
        (1, 8, COMPARE_SWAP, true),
        (2, 8, FETCH_ADD, true),
    ];
    for (operations, size, opcode, works) in asks {
        let mut pair = Pair::of([atomic_card(1, operations, size), Config::new(2)]);
        let [(mut qp, mut cq), _] = pair.connect(RC);
        let [local, remote] = [0, 1].map(|end| {
            let node = if end == 0 { &mut pair.a } else { &mut pair.b };
            let memory = node.host.alloc(4096, 4096);
            (
                node.register(pair.pd[end], memory, memory, 4096, ALL),
                memory,
            )
        });
        let mut segments = remote_segment(remote.1, remote.0);
        segments.extend([0; 16]);
        segments.extend(data_segment((local.0, local.1, 8)));
        pair.a.post_send(&mut qp, opcode, SIGNALED, 0, &segments);
        pair.a.ring_send(&qp);
        pair.run();
        let cqe = pair.a.poll(&mut cq).unwrap();
        let outcome = (cqe.opcode, cqe.syndrome);
        let wanted = if works {
            (0, 0)
        } else {
            (SEND_FAILED, LOCAL_QP_OPERATION)
        };
        assert_eq!(outcome, wanted, "{operations:#x} {size:#x} {opcode:#x}");
    }
}

/// Creates a QP of a page and a quarter, whose pages are listed as given, in pages of 8 KiB or of 4 KiB.
fn qp_in_pages(
    node: &mut Node,
    pd: u32,
    cq: u32,
    pages: [u64; 2],
    log_page_size: u8,
) -> Result<u32, Failure> {
    let record = node.host.alloc(8, 8);
    let mut create = CreateQpIn::new();
    create
        .qpc_mut()
        .set_pm_state(3)
        .set_pd(pd)
        .set_log_rq_size(4)
        .set_log_rq_stride(2)
        .set_log_sq_size(6)
        .set_log_page_size(log_page_size)
        .set_uar_page(node.uar)
        .set_cqn_snd(cq)
        .set_cqn_rcv(cq)
        .set_dbr_addr(record);
    let list = pages.map(u64::to_be_bytes).concat();
    let (output, _) = node.command_with(&create, &list, 0)?;
    Ok(output.qpn())
}

#[test]
fn queues_in_unaligned_pages_are_refused() {
    let mut pair = Pair::new();
    let (pd, node) = (pair.pd[0], &mut pair.a);
    let cq = node.create_cq(4, 1).number;
    let at = node.host.alloc(4 * 4096, 2 * 4096);
    qp_in_pages(node, pd, cq, [at, at + 4096], 0).unwrap();
    qp_in_pages(node, pd, cq, [at, 0], 1).unwrap();
    for (pages, log_page_size) in [
        ([at + 8, at + 4096], 0),
        ([at, at + 4097], 0),
        ([at + 4096, 0], 1),
        ([at + 2048, 0], 1),
    ] {
        let answer = qp_in_pages(node, pd, cq, pages, log_page_size);
        let wanted = Err(refused(Syndrome::QpPageUnaligned));
        assert_eq!(answer, wanted, "{pages:x?}");
    }
    let mut create = CreateEqIn::new();
    create.eq_context_entry_mut().set_uar_page(node.uar);
    let answer = node.command_with(&create, &(at + 1).to_be_bytes(), 0).err();
    assert_eq!(answer, Some(refused(Syndrome::EqPageUnaligned)));
    let mut create = CreateCqIn::new();
    create
        .cq_context_mut()
        .set_uar_page(node.uar)
        .set_c_eqn_or_apu_element(node.events[1].number)
        .set_dbr_addr(at);
    let answer = node
        .command_with(&create, &(at + 64).to_be_bytes(), 0)
        .err();
    assert_eq!(answer, Some(refused(Syndrome::CqPageUnaligned)));
    let mut create = CreateRmpIn::new();
    create
        .ctx_mut()
        .set_state(1)
        .wq_mut()
        .set_pd(pd)
        .set_dbr_addr(at)
        .set_log_wq_stride(6);
    let answer = node
        .command_with(&create, &(at + 64).to_be_bytes(), 0)
        .err();
    assert_eq!(answer, Some(refused(Syndrome::SrqPageUnaligned)));
}

/// Access to memory that the IOMMU does not map any more is a fault that the host sees, and moves no data.
#[test]
fn queues_that_are_not_mapped_are_dma_faults() {
    // The send queue, then the completion queue.
    for (nth, write) in [false, true].into_iter().enumerate() {
        let mut pair = Pair::new();
        let [(mut qp, mut cq), _] = pair.connect(RC);
        let nothing = remote_segment(0, 0);
        pair.a.post_send(&mut qp, RDMA_WRITE, SIGNALED, 0, &nothing);
        assert_eq!(pair.a.host.faults, []);
        let ring = [qp.ring, cq.ring][nth];
        pair.a.host.unmapped = ring..ring + 4096;
        pair.a.ring_send(&qp);
        pair.run();
        let fault = pair.a.host.faults[0];
        assert!((ring..ring + 4096).contains(&fault.iova) && fault.write == write);
        assert!(pair.a.model.stats().dma_faults > 0);
        pair.a.host.unmapped = 0..0;
        let reported = pair.a.poll(&mut cq).map(|cqe| (cqe.opcode, cqe.syndrome));
        let wanted = (SEND_FAILED, LOCAL_QP_OPERATION);
        assert_eq!(reported, (!write).then_some(wanted));
    }
}

/// Linux and rdma-core free the UARs of a program that ends with live queues, and Linux ignores the answer.
#[test]
fn a_uar_that_queues_name_is_freed() {
    for fatal in [false, true] {
        // Named by a CQ, by a QP, by nothing.
        for (named_by, unknown) in [("CQ", true), ("QP", true), ("", false)] {
            let mut config = Config::new(1);
            config.unknown_answers_are_fatal = fatal;
            let mut pair = Pair::of([config, Config::new(2)]);
            let own = pair.a.uar;
            let other = pair.a.command(&AllocUarIn::new()).unwrap().uar();
            match named_by {
                "CQ" => {
                    pair.a.uar = other;
                    try_cq(&mut pair.a, |_| ()).unwrap();
                    pair.a.uar = own;
                }
                "QP" => _ = try_qp(&mut pair, RC, |qpc| _ = qpc.set_uar_page(other)).unwrap(),
                _ => {}
            }
            let mut free = DeallocUarIn::new();
            free.set_uar(other);
            pair.a.command(&free).unwrap();
            let reported = pair.a.model.stats().unknown_answers;
            assert_eq!(reported, u64::from(unknown), "{named_by}");
            let syndrome = u8::from(unknown && fatal);
            assert_eq!(pair.a.model.health_syndrome(), syndrome, "{named_by}");
        }
    }
}
