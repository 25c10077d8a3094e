//! From power-on to INIT_HCA and back: the order of commands, pages, levels, resets.

use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::domain::{AllocPdIn, DeallocPdIn};
use bareverbs_firmware_cmds::eq::DestroyEqIn;
use bareverbs_firmware_cmds::hca::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, NopIn, QueryAdapterIn, QueryIssiIn, QueryVuidIn,
    QueryVuidOut, SetIssiIn, TeardownHcaIn,
};
use bareverbs_firmware_cmds::pages::{ManagePagesIn, QueryPagesIn};
use bareverbs_firmware_cmds::uar::DeallocUarIn;
use connectx_model::{Card, Config, Syndrome};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

#[test]
fn a_function_comes_up_and_goes_down() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    assert!(node.uar >= 3);
    let adapter = node.command(&QueryAdapterIn::new()).unwrap();
    assert_eq!(
        &adapter.query_adapter_struct().vsd_contd_psid()[..4],
        b"BRV0"
    );
    let held = node.model.pages_held();
    assert_eq!(held, node.given.len());
    let mut dealloc = DeallocUarIn::new();
    dealloc.set_uar(node.uar);
    node.command(&dealloc).unwrap();
    node.shut_down();
    assert_eq!(node.model.pages_held(), 0);
    assert_eq!(node.model.leaks(), []);
    assert_eq!(node.host.faults, []);
    // And once more, with another queue address.
    node.queue = node.host.alloc(4096, 4096);
    node.program_queue();
    node.initialize();
}

#[test]
fn a_function_has_its_own_universal_identifier_where_the_card_offers_it() {
    let ask = |config: Config, change: fn(&mut QueryVuidIn)| {
        let mut node = Node::new(config);
        node.initialize();
        let mut query = QueryVuidIn::new();
        change(&mut query);
        let (answer, text) = node.command_with(&query, &[], QueryVuidOut::ENTRY)?;
        assert_eq!(answer.num_of_entries(), 1);
        Ok(String::from_utf8(text).expect("text"))
    };
    let card = || Config::card(Card::ConnectX7, 1);
    let own = ask(card(), |_| {}).unwrap();
    assert!(own.trim_end_matches('\0').ends_with("MLNXS0D0F0"), "{own}");
    let virtual_one = ask(Config::card(Card::BlueFieldVf, 1), |_| {}).unwrap();
    assert!(
        virtual_one.trim_end_matches('\0').ends_with("VF1"),
        "{virtual_one}"
    );
    for change in [
        |query: &mut QueryVuidIn| _ = query.set_data_direct(true),
        |query: &mut QueryVuidIn| _ = query.set_query_vfs_vuid(true),
        |query: &mut QueryVuidIn| _ = query.set_vhca_id(7),
    ] {
        assert_eq!(ask(card(), change), Err(refused(Syndrome::OtherFunction)));
    }
    let unsupported = Err(refused(Syndrome::VuidUnsupported));
    assert_eq!(ask(Config::new(1), |_| {}), unsupported);
}

#[test]
fn commands_out_of_order_are_refused() {
    let mut node = Node::new(Config::new(1));
    assert_eq!(
        node.command(&QueryIssiIn::new()).err(),
        Some(refused(Syndrome::NotEnabled))
    );
    node.command(&EnableHcaIn::new()).unwrap();
    assert_eq!(
        node.command(&EnableHcaIn::new()).err(),
        Some(refused(Syndrome::AlreadyEnabled))
    );
    assert_eq!(
        node.command(&InitHcaIn::new()).err(),
        Some(refused(Syndrome::InitWithoutPages))
    );
    assert_eq!(
        node.command(&AllocPdIn::new()).err(),
        Some(refused(Syndrome::NotInitialized))
    );
    let mut issi = SetIssiIn::new();
    issi.set_current_issi(0);
    assert_eq!(
        node.command(&issi).err(),
        Some(refused(Syndrome::IssiUnsupported))
    );
    node.give_pages(1);
    node.give_pages(2);
    node.command(&InitHcaIn::new()).unwrap();
    assert_eq!(
        node.command(&InitHcaIn::new()).err(),
        Some(refused(Syndrome::InitTwice))
    );
    assert_eq!(
        node.command(&DisableHcaIn::new()).err(),
        Some(refused(Syndrome::DisableWhileInitialized))
    );
    issi.set_current_issi(1);
    assert_eq!(
        node.command(&issi).err(),
        Some(refused(Syndrome::IssiTooLate))
    );
    let mut teardown = TeardownHcaIn::new();
    teardown.set_profile(2);
    assert_eq!(
        node.command(&teardown).err(),
        Some(refused(Syndrome::TeardownProfile))
    );
}

#[test]
fn both_levels_are_offered_as_configured() {
    for supported in [0b01, 0b10, 0b11] {
        let mut node = Node::new(Config {
            supported_issi: supported,
            ..Config::new(1)
        });
        node.command(&EnableHcaIn::new()).unwrap();
        let issi = node.command(&QueryIssiIn::new()).unwrap();
        assert_eq!(issi.supported_issi_dw0(), supported);
        assert_eq!(issi.current_issi(), 0);
    }
    let mut old = Node::new(Config {
        supported_issi: 0,
        ..Config::new(1)
    });
    old.command(&EnableHcaIn::new()).unwrap();
    assert_eq!(
        old.command(&QueryIssiIn::new()).err(),
        Some(refused(Syndrome::IssiQueryUnsupported))
    );
}

#[test]
fn unknown_opcodes_come_back_as_their_own_syndrome() {
    let mut node = Node::new(Config::new(1));
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0x0a00u16.to_be_bytes());
    assert_eq!(node.raw(&input, 16), Err(Failure::Status(2, 0x0a00)));
}

#[test]
fn lengths_and_reserved_bits_are_checked() {
    let mut node = Node::new(Config::new(1));
    node.command(&EnableHcaIn::new()).unwrap();
    let query = QueryIssiIn::new();
    assert_eq!(
        node.raw(&query.as_bytes()[..12], 0x70),
        Err(refused(Syndrome::InputShort))
    );
    assert_eq!(
        node.raw(query.as_bytes(), 0x20),
        Err(refused(Syndrome::OutputShort))
    );
    let mut stray = query;
    stray.0[9] = 1;
    assert_eq!(
        node.raw(stray.as_bytes(), 0x70),
        Err(refused(Syndrome::ReservedSet))
    );
    assert_eq!(node.raw(&[0; 4], 16), Err(Failure::Delivery(7)));
    assert_eq!(node.raw(query.as_bytes(), 4), Err(Failure::Delivery(8)));
}

#[test]
fn capabilities_can_be_set_up_to_their_maximum() {
    let mut node = Node::new(Config::new(1));
    node.command(&EnableHcaIn::new()).unwrap();
    let query = |node: &mut Node, op_mod: u16| {
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(op_mod);
        let (_, bytes) = node.command_with(&query, &[], 0x1000).unwrap();
        HcaCap::read_from_prefix(&bytes).unwrap().0
    };
    let (max, mut cap) = (query(&mut node, 0), query(&mut node, 1));
    assert_eq!(cap.cqe_version(), 1);
    assert_eq!(cap.log_bf_reg_size(), 9);
    assert!(cap.roce() && cap.xrc() && cap.atomic());
    assert_eq!(max.cmdif_checksum(), 3);
    cap.set_log_max_qp(12);
    let mut set = SetHcaCapIn::new();
    let mut image = cap.0.to_vec();
    image.resize(0x1000, 0);
    set.set_op_mod(0);
    node.command_with(&set, &image, 0).unwrap();
    assert_eq!(query(&mut node, 1).log_max_qp(), 12);
    cap.set_log_max_qp(30);
    image[..0x100].copy_from_slice(&cap.0);
    assert_eq!(
        node.command_with(&set, &image, 0).err(),
        Some(refused(Syndrome::CapBeyondMax))
    );
    assert_eq!(query(&mut node, 1).log_max_qp(), 12);
    let mut unknown = QueryHcaCapIn::new();
    unknown.set_op_mod(0x40);
    assert_eq!(
        node.command_with(&unknown, &[], 0x1000).err(),
        Some(refused(Syndrome::CapType))
    );
}

#[test]
fn pages_are_counted_checked_and_come_back() {
    let mut node = Node::new(Config::new(1));
    node.command(&EnableHcaIn::new()).unwrap();
    let mut query = QueryPagesIn::new();
    query.set_op_mod(1);
    assert_eq!(node.command(&query).unwrap().num_pages(), 16);
    let give = |node: &mut Node, pages: &[u64], entries: u32| {
        let mut give = ManagePagesIn::new();
        give.set_op_mod(1).set_input_num_entries(entries);
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        node.command_with(&give, &list, 0).err()
    };
    let page = node.host.alloc(4096, 4096);
    assert_eq!(
        give(&mut node, &[page], 2),
        Some(refused(Syndrome::PagesListShort))
    );
    assert_eq!(
        give(&mut node, &[page + 8], 1),
        Some(refused(Syndrome::PagesUnaligned))
    );
    assert_eq!(
        give(&mut node, &[page, page], 2),
        Some(refused(Syndrome::PagesTwice))
    );
    assert_eq!(
        give(&mut node, &[0x1000], 1),
        Some(refused(Syndrome::PagesUnreachable))
    );
    node.host.faults.clear();
    assert_eq!(give(&mut node, &[page], 1), None);
    assert_eq!(
        give(&mut node, &[page], 1),
        Some(refused(Syndrome::PagesTwice))
    );
    assert_eq!(node.command(&query).unwrap().num_pages(), 15);
    node.given.push(page);
    assert_eq!(node.take_pages(4), 1);
    assert_eq!(node.model.pages_held(), 0);
}

#[test]
fn a_page_that_is_not_left_alone_stops_the_firmware() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let pd = node.alloc_pd();
    // The first page given is the firmware's own; a driver that uses it for something else finds out.
    let last = *node.given.last().unwrap();
    let first = node.given[16];
    for page in [first, last] {
        node.host.bytes(page, 4096).fill(0xaa);
    }
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    assert_eq!(
        node.command(&dealloc).err(),
        Some(refused(Syndrome::ContextLost))
    );
    assert_eq!(node.model.health_syndrome(), 1);
    assert_eq!(node.read32(0x23c) >> 16 & 0xff, 1);
    assert_ne!(node.read32(0x238) >> 31, 0);
    let counter = node.read32(0x1010);
    node.sleep(Duration::from_secs(3));
    assert_eq!(node.read32(0x1010), counter, "the health counter goes on");
    assert_eq!(node.command(&NopIn::new()).err(), Some(Failure::Silence));
    // A function reset brings it back.
    node.model.function_reset();
    node.given.clear();
    node.program_queue();
    node.initialize();
    let counter = node.read32(0x1010);
    node.sleep(Duration::from_secs(3));
    assert_ne!(node.read32(0x1010), counter);
}

#[test]
fn objects_left_behind_are_reported() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 1 << 9, 0);
    node.alloc_pd();
    node.command(&TeardownHcaIn::new()).unwrap();
    use connectx_model::ObjectKind;
    let kinds: Vec<_> = node.model.leaks().iter().map(|leak| leak.kind).collect();
    assert_eq!(kinds, [ObjectKind::Uar, ObjectKind::Pd, ObjectKind::Eq]);
    let mut destroy = DestroyEqIn::new();
    destroy.set_eq_number(node.events[eq].number as u8);
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::NotInitialized))
    );
    node.command(&DisableHcaIn::new()).unwrap();
    let leaks = node.model.leaks();
    assert_eq!(leaks.last().map(|leak| leak.kind), Some(ObjectKind::Page));
    assert_eq!(leaks.last().map(|leak| leak.number), Some(24));
}

#[test]
fn a_card_off_the_bus_reads_as_ones_and_stays_silent() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    node.model.vanish();
    assert_eq!(node.read32(0x230), u32::MAX);
    assert_eq!(node.read32(0x1fc), u32::MAX);
    assert_eq!(node.command(&NopIn::new()).err(), Some(Failure::Silence));
    assert_eq!(node.model.next_deadline(), None);
}

#[test]
fn the_interface_can_be_switched_off_without_commands() {
    const DISABLED: u32 = 1;
    const RESET: u32 = 7;
    let mut node = Node::new(Config::new(1));
    node.initialize();
    node.create_eq(7, 1 << 9, 0);
    // Drivers write the queue's address back with the state beside it.
    let address = node.read32(0x14) & !0xfff;
    node.write32(0x14, address | DISABLED << 8);
    assert_eq!(node.read32(0x14) >> 8 & 7, DISABLED);
    assert_eq!(node.model.objects(), Default::default());
    assert_eq!((node.model.pages_held(), node.model.leaks()), (0, &[][..]));
    assert_eq!(node.command(&NopIn::new()).err(), Some(Failure::Silence));
    // A software reset restores it.
    node.write32(0x14, address | RESET << 8);
    assert_eq!(node.read32(0x14) >> 8 & 7, DISABLED);
    node.given.clear();
    node.program_queue();
    node.initialize();
    node.write32(0x14, address | RESET << 8);
    assert_eq!(node.model.objects(), Default::default());
}

#[test]
fn the_firmware_looks_after_its_own_pages() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    // The first sixteen pages are the firmware's own.
    let page = node.given[3];
    node.host.bytes(page, 16).fill(0);
    assert_eq!(
        node.command(&TeardownHcaIn::new()).err(),
        Some(refused(Syndrome::ContextLost))
    );
    assert_eq!(node.model.health_syndrome(), 1);
}
