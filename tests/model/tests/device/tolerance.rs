//! Deviations of other drivers that cards accept: short messages, output buffers smaller than the answer, and
//! resources that are freed before what uses them.

use crate::common::queues::{Pair, QpPlan};
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::cq::{DestroyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::hca::InitHcaIn;
use bareverbs_firmware_cmds::qp::{
    DestroyQpIn, Init2rtrQpIn, QueryQpIn, QueryQpOut, Rst2initQpIn, Rtr2rtsQpIn,
};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_firmware_cmds::vport::{QueryHcaVportContextIn, QueryHcaVportGidIn};
use connectx_model::{Config, Syndrome};
use zerocopy::{FromBytes, IntoBytes};

const RC: u8 = 0;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// rdma-core's VFIO driver and iPXE.
#[test]
fn init_hca_of_16_bytes_is_taken() {
    let mut node = Node::new(Config::new(1));
    node.enable();
    let init = InitHcaIn::new();
    assert_eq!(
        node.raw(&init.as_bytes()[..12], 16),
        Err(refused(Syndrome::InputShort))
    );
    node.raw(&init.as_bytes()[..16], 16).unwrap();
    node.command(&AllocUarIn::new()).unwrap();
}

/// A node with an RC QP in RESET, whose peer does not matter.
fn with_qp() -> (Pair, u32, u32) {
    let mut pair = Pair::new();
    let cq = pair.a.create_cq(4, 1).number;
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        user_index: 0,
    };
    let qpn = pair.a.create_qp(plan).number;
    (pair, qpn, cq)
}

/// iPXE: 256 of 272 bytes, no optional parameters and no migration state with INIT2RTR.
#[test]
fn transitions_of_256_bytes_are_taken() {
    let (mut pair, qpn, _) = with_qp();
    let node = &mut pair.a;
    let mut init = Rst2initQpIn::new();
    init.set_qpn(qpn);
    init.qpc_mut().set_pm_state(3);
    init.qpc_mut()
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    node.raw(&init.as_bytes()[..256], 16).unwrap();
    let mut rtr = Init2rtrQpIn::new();
    rtr.set_qpn(qpn);
    rtr.qpc_mut()
        .set_mtu(3)
        .set_log_msg_max(30)
        .set_remote_qpn(0x77)
        .primary_address_path_mut()
        .set_hop_limit(64);
    assert_eq!(
        node.raw(&rtr.as_bytes()[..224], 16),
        Err(refused(Syndrome::InputShort))
    );
    node.raw(&rtr.as_bytes()[..256], 16).unwrap();
    let mut rts = Rtr2rtsQpIn::new();
    rts.set_qpn(qpn);
    rts.qpc_mut().set_pm_state(3);
    node.raw(&rts.as_bytes()[..256], 16).unwrap();
    let mut query = QueryQpIn::new();
    query.set_qpn(qpn);
    let state = node.command(&query).unwrap().qpc().state();
    assert_eq!(state, 3, "not RTS");
}

/// A request for another migration state is still refused: there is none.
#[test]
fn migration_that_is_asked_for_is_refused() {
    let (mut pair, qpn, _) = with_qp();
    let mut init = Rst2initQpIn::new();
    init.set_qpn(qpn);
    init.qpc_mut().set_pm_state(1);
    let answer = pair.a.command(&init).err();
    assert_eq!(answer, Some(refused(Syndrome::QpMigration)));
}

#[test]
fn query_hca_vport_context_with_space_for_224_bytes() {
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let query = QueryHcaVportContextIn::new();
    let short = node.raw(query.as_bytes(), 224).unwrap();
    let whole = node.raw(query.as_bytes(), 528).unwrap();
    assert_eq!(short[..], whole[..224]);
    assert_ne!(short[16..], [0; 208]);
}

#[test]
fn queries_give_as_many_pages_as_fit() {
    let (mut pair, qpn, cqn) = with_qp();
    let node = &mut pair.a;
    let mut query = QueryQpIn::new();
    query.set_qpn(qpn);
    // The ring is 64 * 64 + 16 * 64 bytes long.
    let all = page_tail(node, &query, 2);
    assert!(all.iter().all(|&page| page != 0), "{all:x?}");
    assert_eq!(page_tail(node, &query, 0), []);
    assert_eq!(page_tail(node, &query, 1), all[..1]);
    assert_eq!(page_tail(node, &query, 4), [all[0], all[1], 0, 0]);
    // Half an entry's space holds none.
    let size = size_of::<QueryQpOut>();
    let odd = node.raw(query.as_bytes(), size + 12).unwrap();
    assert_eq!(odd[size..size + 8], all[0].to_be_bytes());
    assert_eq!(odd[size + 8..], [0; 4]);
    let mut query = QueryCqIn::new();
    query.set_cqn(cqn);
    let odd = node.command_with(&query, &[], 4).unwrap().1;
    assert_eq!(odd, [0; 4]);
}

fn page_tail(node: &mut Node, query: &QueryQpIn, count: usize) -> Vec<u64> {
    let (_, tail) = node.command_with(query, &[], 8 * count).unwrap();
    tail.chunks_exact(8)
        .map(|entry| u64::read_from_bytes(entry).unwrap().swap_bytes())
        .collect()
}

#[test]
fn unused_gids_of_an_infiniband_port_carry_the_subnets_prefix() {
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let mut query = QueryHcaVportGidIn::new();
    for index in [1, 7] {
        query.set_gid_index(index);
        let (_, gid) = node.command_with(&query, &[], 16).unwrap();
        assert_eq!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// A program that ends without destroying its CQ, as Linux and rdma-core clean up after it: first the UAR, then the rest.
#[test]
fn a_virtual_function_does_not_run_out_of_uars() {
    let mut pair = Pair::of([Config::new(1).virtual_function(), Config::new(2)]);
    let node = &mut pair.a;
    let own = node.uar;
    for _ in 0..300 {
        node.uar = node.command(&AllocUarIn::new()).unwrap().uar();
        let cq = node.create_cq(4, 1);
        let plan = QpPlan {
            st: RC,
            pd: pair.pd[0],
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: None,
            user_index: 0,
        };
        let qp = node.create_qp(plan);
        let mut uar = DeallocUarIn::new();
        uar.set_uar(node.uar);
        node.command(&uar).unwrap();
        let mut destroy = DestroyQpIn::new();
        destroy.set_qpn(qp.number);
        node.command(&destroy).unwrap();
        let mut destroy = DestroyCqIn::new();
        destroy.set_cqn(cq.number);
        node.command(&destroy).unwrap();
    }
    assert_eq!(node.model.objects().uars, 1);
    // Event queues keep theirs.
    let mut uar = DeallocUarIn::new();
    uar.set_uar(own);
    let busy = node.command(&uar).err();
    assert_eq!(busy, Some(refused(Syndrome::UarBusy)));
}
