//! Cards by name: what each answers, beside what is known of it from elsewhere.

use crate::common::queues::QpPlan;
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::eq::CreateEqIn;
use bareverbs_firmware_cmds::hca::{DisableHcaIn, EnableHcaIn, InitHcaIn};
use bareverbs_firmware_cmds::pages::{ManagePagesIn, QueryPagesIn};
use bareverbs_firmware_cmds::uar::AllocUarIn;
use bareverbs_firmware_cmds::vport::QueryNicVportContextIn;
use connectx_model::{Card, Config, FunctionKind, Syndrome};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// The log that the card's file was made from.
const RECORDED: &str = include_str!("../data/connectx-4-lx-14.12.1220.txt");

/// The recorded groups, by op_mod of QUERY_HCA_CAP.
fn recorded() -> BTreeMap<u16, [u8; 0x100]> {
    let mut groups = BTreeMap::new();
    let mut op_mod = None;
    for line in RECORDED.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let (_, rest) = title.split_once("(capability type ").unwrap();
            let kind: u16 = rest[..1].parse().unwrap();
            let current = rest.contains("current");
            op_mod = Some(kind << 1 | u16::from(current));
        } else if let (Some(op_mod), Some((offset, dwords))) = (op_mod, line.split_once(": ")) {
            let image = groups.entry(op_mod).or_insert([0; 0x100]);
            let mut at = usize::from_str_radix(offset, 16).unwrap();
            for dword in dwords.split(' ') {
                let dword = u32::from_str_radix(dword, 16).unwrap();
                image[at..at + 4].copy_from_slice(&dword.to_be_bytes());
                at += 4;
            }
        }
    }
    groups
}

fn pages(node: &mut Node, stage: u16) -> u32 {
    let mut query = QueryPagesIn::new();
    query.set_op_mod(stage);
    node.command(&query).unwrap().num_pages()
}

#[test]
fn the_recorded_card_answers_as_recorded() {
    let groups = recorded();
    assert_eq!(groups.len(), 10);
    let mut node = Node::new(Config::card(Card::ConnectX4Lx, 1));
    node.command(&EnableHcaIn::new()).unwrap();
    assert_eq!(pages(&mut node, 1), 6);
    assert_eq!(pages(&mut node, 2), 12_868);
    for (op_mod, image) in groups {
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(op_mod);
        let (_, answer) = node.command_with(&query, &[], 0x1000).unwrap();
        assert_eq!(answer[..0x100], image, "op_mod {op_mod:#x}");
        assert_eq!(answer[0x100..], [0; 0xf00], "op_mod {op_mod:#x}");
    }
    assert_eq!(node.read32(0), 12 << 16 | 14);
    assert_eq!(node.read32(4), 5 << 16 | 1220);
}

#[test]
fn the_recorded_card_numbers_as_recorded() {
    let mut config = Config::card(Card::ConnectX4Lx, 1);
    config.init_pages = 8;
    let mut node = Node::new(config);
    node.enable();
    node.command(&InitHcaIn::new()).unwrap();
    assert_eq!(node.command(&AllocUarIn::new()).unwrap().uar(), 0x10);
    node.uar = 0x10;
    let eq = node.create_eq(4, 1 << 9, 0);
    assert_eq!(node.events[eq].number, 0x10);
    let query = QueryNicVportContextIn::new();
    let (answer, _) = node.command_with(&query, &[], 0x100).unwrap();
    let context = answer.nic_vport_context();
    assert_eq!(context.min_wqe_inline_mode(), 1);
}

#[test]
fn max_num_eqs_of_zero_is_as_many_as_log_max_eq_says() {
    let mut config = Config::new(1);
    for caps in [&mut config.general, &mut config.general_max] {
        caps.set_max_num_eqs(0).set_log_max_eq(2);
    }
    let mut node = Node::new(config);
    node.initialize();
    for _ in 0..4 {
        node.create_eq(2, 0, 0);
    }
    let mut create = CreateEqIn::new();
    create.eq_context_entry_mut().set_uar_page(node.uar);
    let list = crate::common::page_list(node.host.alloc(4096, 4096), 4096);
    let refused = node.command_with(&create, &list, 0).err();
    assert_eq!(refused, Some(answer(Syndrome::EqExhausted)));
}

fn answer(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// SET_HCA_CAP raises `log_max_qp`, and then there are as many.
#[test]
fn raised_log_max_qp_gives_more_queue_pairs() {
    for (raise, most) in [(false, 0x80), (true, 0x100)] {
        let mut config = Config::new(1);
        config.general.set_log_max_qp(7);
        config.general_max.set_log_max_qp(8);
        let mut node = Node::new(config);
        node.enable();
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(1);
        let (_, image) = node.command_with(&query, &[], 0x1000).unwrap();
        let mut caps = HcaCap::read_from_bytes(&image[..0x100]).unwrap();
        caps.set_log_max_qp(if raise { 8 } else { 7 });
        let mut image = image;
        image[..0x100].copy_from_slice(&caps.0);
        node.command_with(&SetHcaCapIn::new(), &image, 0).unwrap();
        node.command(&InitHcaIn::new()).unwrap();
        node.uar = node.command(&AllocUarIn::new()).unwrap().uar();
        node.give(16);
        let (pd, eq) = (node.alloc_pd(), node.create_eq(4, 0, 0));
        let cq = node.create_cq(4, eq).number;
        let plan = QpPlan {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            st: 0,
            user_index: 0,
        };
        for nth in 0..most {
            node.try_create_qp(plan, |_| {})
                .unwrap_or_else(|error| panic!("{nth} of {most}: {error:?}"));
        }
        let refused = node.try_create_qp(plan, |_| {}).err();
        assert_eq!(refused, Some(answer(Syndrome::QpExhausted)));
    }
}

#[test]
fn the_embedded_cores_function_is_named_in_commands() {
    let mut node = Node::new(Config::card(Card::BlueFieldEcpf, 1));
    assert_eq!(node.read32(0x1fc) >> 23 & 1, 1);
    let other = Some(answer(Syndrome::OtherFunction));
    let host = EnableHcaIn::new();
    // Before its own function is enabled, it cannot be about the host's.
    assert_eq!(node.command(&host).err(), other);
    let mut enable = EnableHcaIn::new();
    enable.set_embedded_cpu_function(true);
    node.command(&enable).unwrap();
    // Linux on these cores enables the host's function, and disables it in the end.
    node.command(&host).unwrap();
    node.command(&DisableHcaIn::new()).unwrap();

    let mut query = QueryPagesIn::new();
    query.set_op_mod(1);
    assert_eq!(node.command(&query).err(), other);
    query.set_embedded_cpu_function(true);
    let wanted = node.command(&query).unwrap();
    assert!(wanted.embedded_cpu_function());
    let mut give = ManagePagesIn::new();
    give.set_op_mod(1).set_input_num_entries(1);
    let page = node.host.alloc(4096, 4096).to_be_bytes();
    assert_eq!(node.command_with(&give, &page, 0).err(), other);
    give.set_embedded_cpu_function(true);
    node.command_with(&give, &page, 0).unwrap();
    let again = node.command(&query).unwrap().num_pages();
    assert_eq!(again, wanted.num_pages() - 1);
    let mut disable = DisableHcaIn::new();
    disable.set_embedded_cpu_function(true);
    node.command(&disable).unwrap();

    let mut plain = Node::new(Config::card(Card::BlueField, 1));
    assert_eq!(plain.read32(0x1fc) >> 23 & 1, 0);
    assert_eq!(plain.command(&enable).err(), other);
}

/// As `mlx5_core_pci_table` has them.
#[test]
fn virtual_functions_have_their_own_device_ids() {
    for (card, expected) in [
        (Card::ConnectX4, 0x1014),
        (Card::ConnectX4Lx, 0x1016),
        (Card::ConnectX5, 0x1018),
        (Card::ConnectX6Dx, 0x101e),
        (Card::ConnectX7, 0x101e),
        (Card::BlueField, 0x101e),
        (Card::BlueFieldVf, 0x101e),
    ] {
        let config = Config::card(card, 1).virtual_function();
        assert_eq!(config.device_id, expected, "{card}");
        assert_eq!(config.function, FunctionKind::Virtual);
    }
}

/// Linux's way to the semaphore for resets of the firmware: `mlx5_vsc_gw_lock` and `mlx5_vsc_sem_set_space`.
#[test]
fn the_vendor_specific_capability_locks() {
    let mut node = Node::new(Config::card(Card::ConnectX6Dx, 1));
    let mut at = [0; 4];
    let mut read = |node: &mut Node, offset: usize| {
        node.model.config_read(offset, &mut at);
        u32::from_le_bytes(at)
    };
    let mut vsc = (read(&mut node, 0x34) & 0xfc) as usize;
    while read(&mut node, vsc) as u8 != 0x09 {
        vsc = (read(&mut node, vsc) >> 8 & 0xfc) as usize;
        assert_ne!(vsc, 0, "no such capability");
    }
    assert_eq!(read(&mut node, vsc) >> 16 & 0xff, 0x18);
    let write = |node: &mut Node, offset: usize, value: u32| {
        node.model
            .config_write(&mut node.host, vsc + offset, &value.to_le_bytes());
    };
    // The gateway is taken with a number of one's own; a second user finds it taken.
    assert_eq!(read(&mut node, vsc + 0xc), 0);
    let (first, second) = (read(&mut node, vsc + 0x8), read(&mut node, vsc + 0x8));
    assert_ne!(first, second);
    write(&mut node, 0xc, first);
    write(&mut node, 0xc, second);
    assert_eq!(read(&mut node, vsc + 0xc), first);
    // No dump of the card's registers.
    write(&mut node, 0x4, 0x7);
    assert_eq!(read(&mut node, vsc + 0x4) >> 29, 0);
    // The semaphore for resets, locked by one and then not by another.
    write(&mut node, 0x4, 0xa);
    assert_ne!(read(&mut node, vsc + 0x4) >> 29, 0);
    for (id, owner) in [(first, first), (second, first), (0, 0), (second, second)] {
        write(&mut node, 0x14, id);
        write(&mut node, 0x10, 1 << 31 | 0x20);
        assert_eq!(read(&mut node, vsc + 0x10) >> 31, 0, "not done");
        write(&mut node, 0x10, 0x20);
        assert_eq!(read(&mut node, vsc + 0x10) >> 31, 1, "not done");
        assert_eq!(read(&mut node, vsc + 0x14), owner);
    }
    write(&mut node, 0xc, 0);
    assert_eq!(read(&mut node, vsc + 0xc), 0);
}
