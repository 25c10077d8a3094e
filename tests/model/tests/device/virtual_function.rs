//! A virtual function: what it is on the bus, what it does without, and what it may not do.

use crate::common::queues::{LOCAL_WRITE, Pair, SIGNALED, inline_segment};
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn};
use bareverbs_firmware_cmds::hca::{EnableHcaIn, QueryAdapterIn};
use bareverbs_firmware_cmds::pages::{ManagePagesIn, QueryPagesIn};
use bareverbs_firmware_cmds::register::{AccessRegisterIn, PaosReg, PmtuReg};
use bareverbs_firmware_cmds::vport::{
    ModifyHcaVportContextIn, ModifyNicVportContextIn, NicVportContext, QueryHcaVportContextIn,
    QueryNicVportContextIn, QueryVportStateIn,
};
use connectx_model::{Config, Syndrome};
use zerocopy::FromBytes;

const HOST_ENDIANNESS: u16 = 0x7004;
const PMTU: u16 = 0x5003;
const PTYS: u16 = 0x5004;
const PAOS: u16 = 0x5006;
const PFCC: u16 = 0x5007;
const PPCNT: u16 = 0x5008;
const RC: u8 = 0;
const SEND: u8 = 0x0a;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

fn virtual_function() -> Node {
    let mut node = Node::new(Config::new(1).virtual_function());
    node.initialize();
    node
}

fn context(node: &mut Node) -> NicVportContext {
    let answer = node.command(&QueryNicVportContextIn::new()).unwrap();
    *answer.nic_vport_context()
}

/// Writes or reads a register of port 1.
fn access(node: &mut Node, id: u16, write: bool, data: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut access = AccessRegisterIn::new();
    access.set_register_id(id).set_op_mod(u16::from(!write));
    node.command_with(&access, data, data.len())
        .map(|(_, data)| data)
}

#[test]
fn the_bus_shows_a_virtual_function() {
    let mut node = Node::new(Config::new(1).virtual_function());
    let mut space = [0; 256];
    node.model.config_read(0, &mut space);
    let word = |at: usize| u16::from_le_bytes([space[at], space[at + 1]]);
    assert_eq!((word(0), word(2)), (0x15b3, 0x1018));
    // Memory space is on, and no interrupt pin.
    let mut fresh = connectx_model::Model::new(Config::new(1).virtual_function());
    let mut command = [0; 2];
    fresh.config_read(4, &mut command);
    assert_eq!(u16::from_le_bytes(command) & 0x6, 0x2);
    assert_eq!(space[0x3d], 0);
    // PCI Express with its function reset, and MSI-X; no power management, and no extended capabilities, of which SR-IOV
    // would be one.
    let mut ids = Vec::new();
    let mut at = usize::from(space[0x34]);
    while at != 0 {
        ids.push(space[at]);
        if space[at] == 0x10 {
            assert_ne!(word(at + 6) & 1 << 12, 0, "no function reset");
        }
        if space[at] == 0x11 {
            assert_eq!(word(at + 2) & 0x7ff, 11);
        }
        at = usize::from(space[at + 1]);
    }
    assert_eq!(ids, [0x10, 0x11]);
    let mut extended = [0xff; 4];
    node.model.config_read(0x100, &mut extended);
    assert_eq!(extended, [0; 4]);
}

#[test]
fn it_needs_no_pages_and_gets_none() {
    for extra in [0, 7] {
        let mut node = Node::new(Config::new(1).virtual_function());
        let faults = node.model.faults_mut();
        (faults.extra_boot_pages, faults.extra_init_pages) = (extra, extra);
        node.initialize();
        for op_mod in 1..=3 {
            let mut query = QueryPagesIn::new();
            query.set_op_mod(op_mod);
            let answer = node.command(&query).unwrap();
            assert_eq!((answer.num_pages(), answer.function_id()), (0, 0));
        }
        for op_mod in 0..=2 {
            let mut manage = ManagePagesIn::new();
            manage.set_op_mod(op_mod);
            assert_eq!(
                node.command(&manage).err(),
                Some(refused(Syndrome::PagesVirtual))
            );
            manage.set_function_id(1);
            assert_eq!(
                node.command(&manage).err(),
                Some(refused(Syndrome::OtherFunction))
            );
        }
        // Objects can still be created, in any number, and none of their contexts is in this host's memory.
        for _ in 0..100 {
            node.alloc_pd();
        }
        node.model.set_page_appetite(1000);
        node.alloc_pd();
        assert_eq!(node.model.pages_held(), 0);
    }
}

#[test]
fn other_functions_are_none_of_its_business() {
    let mut node = Node::new(Config::new(1).virtual_function());
    let mut enable = EnableHcaIn::new();
    enable.set_function_id(1);
    assert_eq!(
        node.command(&enable).err(),
        Some(refused(Syndrome::OtherFunction))
    );
    node.initialize();
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(1);
    let (_, caps) = node.command_with(&query, &[], 0x1000).unwrap();
    let (caps, _) = HcaCap::read_from_prefix(&caps).unwrap();
    assert!(!caps.vport_group_manager());
    assert!(!caps.ets() && !caps.qos());
    query.set_other_function(true).set_function_id(1);
    assert_eq!(
        node.command_with(&query, &[], 0x1000).err(),
        Some(refused(Syndrome::OtherFunction))
    );
    let mut query = QueryNicVportContextIn::new();
    query.set_other_vport(true).set_vport_number(1);
    assert_eq!(
        node.command(&query).err(),
        Some(refused(Syndrome::VportNumber))
    );
    // It may ask which card it is on.
    let adapter = node.command(&QueryAdapterIn::new()).unwrap();
    assert_eq!(
        &adapter.query_adapter_struct().vsd_contd_psid()[..4],
        b"BRV0"
    );
}

#[test]
fn what_belongs_to_the_card_it_cannot_set() {
    let mut node = virtual_function();
    let virtual_only = Some(refused(Syndrome::RegisterVirtual));
    assert_eq!(
        access(&mut node, HOST_ENDIANNESS, true, &[0; 16]).err(),
        virtual_only
    );
    let mut pauses = [0; 32];
    pauses[1] = 1;
    assert_eq!(access(&mut node, PFCC, true, &pauses).err(), virtual_only);
    // Reading is another matter: the driver of a virtual function shows what the port does.
    for (id, len) in [(PFCC, 32), (PTYS, 64), (PPCNT, 0x100)] {
        let mut register = vec![0; len];
        register[1] = 1;
        access(&mut node, id, false, &register).unwrap();
    }
}

/// Its driver writes both registers whenever its network device goes up or down or gets an MTU, and would complain of a
/// refusal; but the port is not its own.
#[test]
fn the_port_stays_as_it_is() {
    let mut node = virtual_function();
    let mut paos = PaosReg::ZERO;
    paos.set_local_port(1).set_admin_status(2).set_ase(true);
    let answer = access(&mut node, PAOS, true, &paos.0).unwrap();
    let (answer, _) = PaosReg::read_from_prefix(&answer).unwrap();
    assert_eq!((answer.admin_status(), answer.oper_status()), (1, 1));
    let state = node.command(&QueryVportStateIn::new()).unwrap();
    assert_eq!((state.admin_state(), state.state()), (1, 1));

    let port = node.model.config().mtu + 22;
    for wanted in [1522, 9022] {
        let mut pmtu = PmtuReg::ZERO;
        pmtu.set_local_port(1).set_admin_mtu(wanted);
        let answer = access(&mut node, PMTU, true, &pmtu.0).unwrap();
        let (answer, _) = PmtuReg::read_from_prefix(&answer).unwrap();
        assert_eq!((answer.admin_mtu(), answer.oper_mtu()), (port, port));
        // The virtual port's is what its driver goes by.
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_mtu(true);
        modify.nic_vport_context_mut().set_mtu(wanted);
        node.command(&modify).unwrap();
        assert_eq!(context(&mut node).mtu(), wanted);
        let answer = access(&mut node, PMTU, false, &pmtu.0).unwrap();
        let (answer, _) = PmtuReg::read_from_prefix(&answer).unwrap();
        assert_eq!(answer.oper_mtu(), port);
    }
    let mut beyond = PmtuReg::ZERO;
    beyond.set_local_port(1).set_admin_mtu(20_000);
    assert_eq!(
        access(&mut node, PMTU, true, &beyond.0).err(),
        Some(refused(Syndrome::RegisterMtu))
    );
}

#[test]
fn its_addresses_are_given_to_it() {
    let mut node = virtual_function();
    assert_eq!(context(&mut node).permanent_address(), 0x02c9_0000_0001);
    let select: [fn(&mut ModifyNicVportContextIn); 3] = [
        |modify| {
            modify.field_select_mut().set_permanent_address(true);
        },
        |modify| {
            modify.field_select_mut().set_node_guid(true);
        },
        |modify| {
            modify.field_select_mut().set_port_guid(true);
        },
    ];
    for select in select {
        let mut modify = ModifyNicVportContextIn::new();
        select(&mut modify);
        assert_eq!(
            node.command(&modify).err(),
            Some(refused(Syndrome::VportVirtual))
        );
    }
    // A refused command changes nothing, also of its valid parts.
    let mut modify = ModifyNicVportContextIn::new();
    modify
        .field_select_mut()
        .set_node_guid(true)
        .set_roce_en(true);
    modify.nic_vport_context_mut().set_roce_en(true);
    assert!(node.command(&modify).is_err());
    assert!(!context(&mut node).roce_en());

    let mut node = Node::new(Config::new(1).virtual_function().without_addresses());
    node.initialize();
    let context = context(&mut node);
    assert_eq!(
        (
            context.permanent_address(),
            context.node_guid(),
            context.port_guid()
        ),
        (0, 0, 0)
    );
    assert_ne!(context.system_image_guid(), 0);
    // It may receive frames to addresses that it adds itself.
    let mut modify = ModifyNicVportContextIn::new();
    modify.field_select_mut().set_addresses_list(true);
    modify.nic_vport_context_mut().set_allowed_list_size(1);
    let chosen = 0x0211_2233_4455u64.to_be_bytes();
    node.command_with(&modify, &chosen, 0).unwrap();
    let (_, list) = node
        .command_with(&QueryNicVportContextIn::new(), &[], 8)
        .unwrap();
    assert_eq!(list, chosen);
}

#[test]
fn subnet_management_is_not_for_it() {
    let mut node = Node::new(Config::new(1).infiniband().virtual_function());
    node.initialize();
    let answer = node.command(&QueryHcaVportContextIn::new()).unwrap();
    assert!(!answer.hca_vport_context().has_smi());
    for guid in 0..2 {
        let mut modify = ModifyHcaVportContextIn::new();
        modify.hca_vport_context_mut().set_field_select(1 << guid);
        assert_eq!(
            node.command(&modify).err(),
            Some(refused(Syndrome::VportVirtual))
        );
    }
    let mut physical = Node::new(Config::new(1).infiniband());
    physical.initialize();
    let answer = physical.command(&QueryHcaVportContextIn::new()).unwrap();
    assert!(answer.hca_vport_context().has_smi());
}

#[test]
fn a_reset_makes_it_what_it_was() {
    let mut node = virtual_function();
    let mut modify = ModifyNicVportContextIn::new();
    modify.field_select_mut().set_mtu(true);
    modify.nic_vport_context_mut().set_mtu(1522);
    node.command(&modify).unwrap();
    node.model.function_reset();
    let config = node.model.config().clone();
    assert!(config.is_virtual());
    node.sleep(config.boot_time);
    node.queue = node.host.alloc(4096, 4096);
    node.program_queue();
    node.initialize();
    assert_eq!(context(&mut node).mtu(), config.mtu + 22);
    assert_eq!(node.model.pages_held(), 0);
}

/// Its driver waits for the physical function's to have the firmware reset, and finds its own function disabled then.
#[test]
fn another_driver_resets_the_firmware() {
    const INTERFACE: u64 = 0x14;
    let mut node = virtual_function();
    node.model.fail_health(1, 0);
    let interface = |node: &mut Node| node.read32(INTERFACE) >> 8 & 7;
    // Asking for it does nothing.
    node.write32(INTERFACE, 7 << 8);
    assert_eq!(interface(&mut node), 0);
    assert_ne!(node.read32(0x23c), 0);
    node.model.reset_firmware();
    assert_eq!(interface(&mut node), 1);
    assert_eq!(node.read32(0x23c), 0);
    node.sleep(node.model.config().boot_time);
    node.queue = node.host.alloc(4096, 4096);
    node.program_queue();
    node.initialize();
    // The driver that gives up on a function, and comes back, finds one that is virtual still.
    node.write32(INTERFACE, 1 << 8);
    node.program_queue();
    node.initialize();
    assert_eq!(node.model.pages_held(), 0);
}

/// Traffic is as on any other function: that queue pairs work is what one is for.
#[test]
fn it_talks_to_either_kind() {
    for [first, second] in [[true, false], [false, true], [true, true]] {
        let card = |unit, is_virtual| match Config::new(unit) {
            config if is_virtual => config.virtual_function(),
            config => config,
        };
        let mut pair = Pair::of([card(1, first), card(2, second)]);
        let [(mut from, mut done), (mut to, mut got)] = pair.connect(RC);
        let memory = pair.b.host.alloc(4096, 4096);
        let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
        pair.b.post_receive(&mut to, &[(key, 0, 512)]);
        let data = inline_segment(b"from one function to another");
        pair.a.post_send(&mut from, SEND, SIGNALED, 0, &data);
        pair.a.ring_send(&from);
        pair.run();
        assert_eq!(pair.a.poll(&mut done).unwrap().wqe_opcode, SEND);
        assert_eq!(pair.b.poll(&mut got).unwrap().byte_count, 28);
        assert_eq!(
            pair.b.host.bytes(memory, 28),
            b"from one function to another"
        );
        assert_eq!(pair.a.model.pages_held() == 0, first);
        assert_eq!(pair.b.model.pages_held() == 0, second);
    }
}
