//! The command interface: delivery, signatures, slots, events, pages while commands wait, faults.

use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::command::EmptyOut;
use bareverbs_firmware_cmds::domain::{AllocPdIn, AllocPdOut, DeallocPdIn};
use bareverbs_firmware_cmds::eq::DestroyEqIn;
use bareverbs_firmware_cmds::hca::{EnableHcaIn, NopIn};
use bareverbs_firmware_cmds::pages::{ManagePagesIn, ManagePagesOut};
use bareverbs_firmware_cmds::register::{AccessRegisterIn, PaosReg, PmtuReg, PtysReg};
use connectx_model::{CommandFault, CommandRule, Config, Status, Syndrome};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const COMMAND: u8 = 0x0a;
const PAGE_REQUEST: u8 = 0x0b;
const PAGE_SLOT: u32 = 31;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// A long command: QUERY_HCA_CAP with its 4 KiB answer.
fn query() -> Vec<u8> {
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(1);
    query.as_bytes().to_vec()
}

#[test]
fn what_is_wrong_with_an_entry_is_its_delivery_status() {
    let mut node = Node::new(Config::new(1));
    node.command(&EnableHcaIn::new()).unwrap();
    type Damage = fn(&mut Node, u64);
    let cases: [(&str, u8, Damage); 7] = [
        ("type", 0x10, |node, entry| node.host.put(entry, &[6])),
        ("output pointer misaligned", 4, |node, entry| {
            let at = u64::from_be_bytes(node.host.bytes(entry + 0x30, 8).try_into().unwrap());
            node.host.put64(entry + 0x30, at + 64);
        }),
        ("output pointer missing", 4, |node, entry| {
            node.host.put64(entry + 0x30, 0)
        }),
        ("input pointer missing", 5, |node, entry| {
            node.host.put32(entry + 4, 100);
            node.host.put64(entry + 8, 0);
        }),
        ("token", 2, |node, entry| {
            node.host.put(entry + 0x3c, &[0xee])
        }),
        ("block number", 3, |node, entry| {
            let at = u64::from_be_bytes(node.host.bytes(entry + 0x30, 8).try_into().unwrap());
            node.host.put32(at + 1024 + 0x238, 7);
        }),
        ("chain that leaves memory", 4, |node, entry| {
            let at = u64::from_be_bytes(node.host.bytes(entry + 0x30, 8).try_into().unwrap());
            node.host.put64(at + 0x230, 0xdead_0000);
        }),
    ];
    for (what, status, damage) in cases {
        let entry = node.post(0, &query(), 0x1010);
        damage(&mut node, entry);
        node.ring(1);
        node.advance();
        assert_eq!(
            node.answer(0, 0x1010),
            Err(Failure::Delivery(status)),
            "{what}"
        );
    }
    // The interface still works.
    assert!(node.raw(&query(), 0x1010).is_ok());
    // An entry that is not the device's is left alone.
    let entry = node.post(0, &query(), 0x1010);
    node.host.put(entry + 0x3f, &[0]);
    let before = node.host.bytes(entry, 64).to_vec();
    node.ring(1);
    node.advance();
    assert_eq!(node.host.bytes(entry, 64), before);
}

#[test]
fn signatures_are_checked_once_negotiated_and_always_given() {
    let mut node = Node::new(Config::new(1));
    node.command(&EnableHcaIn::new()).unwrap();
    let xor = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all ^ byte);
    let entry = node.post(0, &query(), 0x1010);
    node.ring(1);
    node.advance();
    let caps = node.answer(0, 0x1010).unwrap()[16..].to_vec();
    // The answer is signed with the ownership bit, as a recorded card does it (tests/decode.rs), and the bit is cleared then.
    assert_eq!(xor(node.host.bytes(entry, 64)), 0xfe);
    let mut block = u64::from_be_bytes(node.host.bytes(entry + 0x30, 8).try_into().unwrap());
    for _ in 0..0x1000 / 512 {
        assert_eq!(xor(node.host.bytes(block, 576)), 0xff);
        assert_eq!(xor(node.host.bytes(block + 512, 63)), 0xff);
        block = u64::from_be_bytes(node.host.bytes(block + 0x230, 8).try_into().unwrap());
    }
    let (mut cap, _) = HcaCap::read_from_prefix(&caps).unwrap();
    cap.set_cmdif_checksum(3);
    let mut image = cap.0.to_vec();
    image.resize(0x1000, 0);
    node.command_with(&SetHcaCapIn::new(), &image, 0).unwrap();
    // From now on an entry without a signature is refused, and one with is not.
    let entry = node.post(0, &query(), 0x1010);
    node.ring(1);
    node.advance();
    assert_eq!(node.answer(0, 0x1010), Err(Failure::Delivery(1)));
    let entry_again = node.post(0, &query(), 0x1010);
    assert_eq!(entry, entry_again);
    let signature = !xor(node.host.bytes(entry, 64));
    node.host.put(entry + 0x3d, &[signature]);
    node.ring(1);
    node.advance();
    assert!(node.answer(0, 0x1010).is_ok());
}

#[test]
fn a_command_of_thousands_of_blocks_is_read() {
    use crate::common::queues::ALL;
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let pd = node.alloc_pd();
    // 38,000 pages' worth of translations of which the range needs only the first: what counts is the length.
    let memory = node.host.alloc(4096, 4096);
    let mut create = bareverbs_firmware_cmds::mkey::CreateMkeyIn::new();
    let entries = 600 * 64 - 100;
    create.set_translations_octword_actual_size(entries / 2);
    create
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(1)
        .set_lr(ALL != 0)
        .set_qpn(0xff_ffff)
        .set_pd(pd)
        .set_len(u64::from(entries) * 4096)
        .set_translations_octword_size(entries / 2)
        .set_log_page_size(12);
    let list: Vec<u8> = (0..entries).flat_map(|_| memory.to_be_bytes()).collect();
    let (output, _) = node.command_with(&create, &list, 0).unwrap();
    assert_ne!(output.mkey_index(), 0);
    assert_eq!(
        node.command_with(&create, &list[..list.len() - 16], 0)
            .err(),
        Some(refused(Syndrome::MkeyList))
    );
}

#[test]
fn with_an_event_queue_every_command_is_reported_once() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    // The command that makes the queue is polled.
    let eq = node.create_eq(7, 1 << COMMAND, 3);
    assert_eq!(node.next_event(eq), None);
    assert_eq!(node.host.interrupts, []);
    node.command(&NopIn::new()).unwrap();
    let (kind, sub, data) = node.next_event(eq).unwrap();
    assert_eq!((kind, sub, &data[..4]), (COMMAND, 0, &[0, 0, 0, 1][..]));
    assert_eq!(node.host.interrupts, [3]);
    // Not armed again: an entry, but no interrupt.
    node.command(&NopIn::new()).unwrap();
    assert_eq!(node.host.interrupts, [3]);
    assert!(node.next_event(eq).is_some());
    // An arm that comes late raises at once.
    node.command(&NopIn::new()).unwrap();
    node.arm_eq(eq);
    assert_eq!(node.host.interrupts, [3, 3]);
    assert!(node.next_event(eq).is_some());
    // Several slots at once, and the failing ones too.
    for slot in [2, 5, 9] {
        node.post(slot, NopIn::new().as_bytes(), 8 + 8);
    }
    node.ring(1 << 2 | 1 << 5 | 1 << 9);
    node.advance();
    let mut slots = 0;
    for _ in 0..3 {
        let (_, _, data) = node.next_event(eq).unwrap();
        let bits = u32::from_be_bytes(data[..4].try_into().unwrap());
        assert_eq!(bits.count_ones(), 1);
        slots |= bits;
    }
    assert_eq!(slots, 1 << 2 | 1 << 5 | 1 << 9);
    assert_eq!(node.next_event(eq), None);
    // The command that destroys the queue is not reported.
    let mut destroy = DestroyEqIn::new();
    destroy.set_eq_number(node.events[eq].number as u8);
    node.command(&destroy).unwrap();
    assert_eq!(node.next_event(eq), None);
}

/// Allocates PDs until the card has to ask for pages; returns the slot whose command waits.
fn exhaust(node: &mut Node) -> u32 {
    for _ in 0..1000 {
        node.post(0, AllocPdIn::new().as_bytes(), 16);
        node.ring(1);
        node.advance();
        if node.answer(0, 16) == Err(Failure::Silence) {
            return 0;
        }
    }
    panic!("pages never run out");
}

#[test]
fn a_command_waits_for_pages_that_another_slot_brings() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 1 << PAGE_REQUEST, 0);
    let slot = exhaust(&mut node);
    let (kind, _, data) = node.next_event(eq).unwrap();
    assert_eq!(kind, PAGE_REQUEST);
    assert_eq!(i32::from_be_bytes(data[4..8].try_into().unwrap()), 8);
    // A fault that is set up meanwhile is for the next command, not for the one that waits.
    node.model.faults_mut().commands.push(CommandRule::next(
        0x800,
        CommandFault::Fail {
            status: Status::Limit,
            syndrome: 1,
        },
    ));
    // Time alone does not help, nor does another command.
    node.sleep(Duration::from_secs(10));
    assert_eq!(node.answer(slot, 16), Err(Failure::Silence));
    node.post(1, NopIn::new().as_bytes(), 16);
    node.ring(2);
    node.advance();
    assert!(node.answer(1, 16).is_ok());
    // Pages come through the last slot while slot 0 waits.
    let page = node.host.alloc(4096, 4096);
    let mut give = ManagePagesIn::new();
    give.set_op_mod(1).set_input_num_entries(1);
    let mut input = give.as_bytes().to_vec();
    input.extend(page.to_be_bytes());
    node.post(PAGE_SLOT, &input, size_of::<ManagePagesOut>());
    node.ring(1 << PAGE_SLOT);
    node.advance();
    assert!(node.answer(PAGE_SLOT, 16).is_ok());
    node.advance();
    let answer = node.answer(slot, 16).unwrap();
    assert_ne!(AllocPdOut::read_from_bytes(&answer).unwrap().pd(), 0);
    assert_eq!(
        node.command(&AllocPdIn::new()).err(),
        Some(Failure::Status(8, 1))
    );
}

#[test]
fn a_host_without_pages_makes_the_command_fail() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    node.create_eq(7, 1 << PAGE_REQUEST, 0);
    let slot = exhaust(&mut node);
    let mut sorry = ManagePagesIn::new();
    sorry.set_op_mod(0);
    node.post(PAGE_SLOT, sorry.as_bytes(), 16);
    node.ring(1 << PAGE_SLOT);
    node.advance();
    assert!(node.answer(PAGE_SLOT, 16).is_ok());
    assert_eq!(
        node.answer(slot, 16),
        Err(refused(Syndrome::NoContextMemory))
    );
    // Faults strike the slot's next command again: the one that waited is done with.
    node.model.faults_mut().commands.push(CommandRule::next(
        0x80d,
        CommandFault::Fail {
            status: Status::Limit,
            syndrome: 1,
        },
    ));
    assert_eq!(
        node.command(&NopIn::new()).err(),
        Some(Failure::Status(8, 1))
    );
    // Without a way to ask, the command fails at once.
    let mut deaf = Node::new(Config::new(1));
    deaf.initialize();
    let failure = loop {
        if let Err(failure) = deaf.command(&AllocPdIn::new()) {
            break failure;
        }
    };
    assert_eq!(failure, refused(Syndrome::NoContextMemory));
}

#[test]
fn idle_pages_are_offered_back() {
    let mut node = Node::new(Config {
        init_pages: 2,
        page_chunk: 4,
        ..Config::new(1)
    });
    node.initialize();
    let eq = node.create_eq(7, 1 << PAGE_REQUEST, 0);
    let mut pds = Vec::new();
    while pds.len() < 200 {
        node.post(0, AllocPdIn::new().as_bytes(), 16);
        node.ring(1);
        node.advance();
        match node.answer(0, 16) {
            Ok(answer) => pds.push(AllocPdOut::read_from_bytes(&answer).unwrap().pd()),
            Err(Failure::Silence) => {
                let (_, _, data) = node.next_event(eq).unwrap();
                let wanted = i32::from_be_bytes(data[4..8].try_into().unwrap());
                assert_eq!(wanted, 4);
                // The waiting command keeps slot 0: pages go through the last one.
                let mut give = ManagePagesIn::new();
                give.set_op_mod(1).set_input_num_entries(4);
                let mut input = give.as_bytes().to_vec();
                for _ in 0..4 {
                    let page = node.host.alloc(4096, 4096);
                    node.given.push(page);
                    input.extend(page.to_be_bytes());
                }
                node.post(PAGE_SLOT, &input, 16);
                node.ring(1 << PAGE_SLOT);
                node.advance();
                node.advance();
                let answer = node.answer(0, 16).unwrap();
                pds.push(AllocPdOut::read_from_bytes(&answer).unwrap().pd());
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let most = node.model.pages_held();
    for pd in pds {
        let mut dealloc = DeallocPdIn::new();
        dealloc.set_pd(pd);
        node.command(&dealloc).unwrap();
        while let Some((kind, _, data)) = node.next_event(eq) {
            assert_eq!(kind, PAGE_REQUEST);
            let surplus = i32::from_be_bytes(data[4..8].try_into().unwrap());
            assert_eq!(surplus, -4);
            assert_eq!(node.take_pages(4), 4);
        }
    }
    assert!(node.model.pages_held() < most);
    assert_eq!(node.model.health_syndrome(), 0);
    node.model.function_reset();
}

#[test]
fn faults_strike_commands() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 1 << COMMAND, 0);
    let alloc = AllocPdIn::new();
    let strike = |node: &mut Node, fault| {
        node.model
            .faults_mut()
            .commands
            .push(CommandRule::next(0x800, fault));
    };
    strike(
        &mut node,
        CommandFault::Fail {
            status: Status::Limit,
            syndrome: 0x1234,
        },
    );
    assert_eq!(node.command(&alloc).err(), Some(Failure::Status(8, 0x1234)));
    strike(&mut node, CommandFault::Delivery(6));
    assert_eq!(node.command(&alloc).err(), Some(Failure::Delivery(6)));
    assert_eq!(node.model.objects().pds, 0);
    strike(&mut node, CommandFault::Delay(Duration::from_secs(5)));
    assert_eq!(node.command(&alloc).err(), Some(Failure::Silence));
    assert_eq!(
        node.model.next_deadline(),
        Some(node.now + Duration::from_secs(5))
    );
    node.sleep(Duration::from_secs(5));
    assert!(node.answer(0, 16).is_ok());
    strike(&mut node, CommandFault::Corrupt { at: 11, with: 0xff });
    let pd = node.command(&alloc).unwrap().pd();
    assert!(pd > 0x80);
    while node.next_event(eq).is_some() {}
    strike(&mut node, CommandFault::LoseEvent);
    node.command(&alloc).unwrap();
    assert_eq!(node.next_event(eq), None);
    assert_eq!(node.model.objects().pds, 3);
    strike(&mut node, CommandFault::DropAnswer);
    assert_eq!(node.command(&alloc).err(), Some(Failure::Silence));
    assert_eq!(node.model.objects().pds, 4);
    // The slot is lost; another one works.
    node.sleep(Duration::from_secs(100));
    assert_eq!(node.answer(0, 16), Err(Failure::Silence));
    node.post(1, NopIn::new().as_bytes(), size_of::<EmptyOut>());
    node.ring(2);
    node.advance();
    assert!(node.answer(1, 16).is_ok());
}

#[test]
fn registers_answer() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 1 << 9, 0);
    let access = |node: &mut Node, id: u16, op_mod: u16, data: &[u8], len: usize| {
        let mut access = AccessRegisterIn::new();
        access.set_register_id(id).set_op_mod(op_mod);
        node.command_with(&access, data, len).map(|(_, data)| data)
    };
    let port = [0, 1, 0, 0];
    let mut data = port.to_vec();
    data.resize(64, 0);
    let ptys = access(&mut node, 0x5004, 1, &data, 64).unwrap();
    assert_ne!(PtysReg::read_from_bytes(&ptys).unwrap().eth_proto_oper(), 0);
    let pmtu = access(&mut node, 0x5003, 1, &data[..16], 16).unwrap();
    assert_eq!(PmtuReg::read_from_bytes(&pmtu).unwrap().oper_mtu(), 4222);
    // Node description: written and read back.
    access(&mut node, 0x6001, 0, &[b'n'; 64], 64).unwrap();
    assert_eq!(
        access(&mut node, 0x6001, 1, &[0; 64], 64).unwrap(),
        [b'n'; 64]
    );
    access(&mut node, 0x7004, 0, &[0; 16], 16).unwrap();
    // The port goes down and up again by command, and reports it.
    let mut paos = PaosReg::ZERO;
    paos.set_local_port(1).set_admin_status(2).set_ase(true);
    access(&mut node, 0x5006, 0, paos.as_bytes(), 16).unwrap();
    assert!(!node.model.link_up());
    let (kind, sub, data_down) = node.next_event(eq).unwrap();
    assert_eq!((kind, sub, data_down[8]), (9, 1, 0x10));
    paos.set_admin_status(1);
    access(&mut node, 0x5006, 0, paos.as_bytes(), 16).unwrap();
    assert_eq!(
        node.next_event(eq).map(|(kind, sub, _)| (kind, sub)),
        Some((9, 4))
    );
    node.model.set_link(&mut node.host, false);
    assert_eq!(
        node.next_event(eq).map(|(kind, sub, _)| (kind, sub)),
        Some((9, 1))
    );
    assert_eq!(
        access(&mut node, 0x9fff, 1, &data, 64).err(),
        Some(refused(Syndrome::RegisterUnknown))
    );
    assert_eq!(
        access(&mut node, 0x5004, 1, &[0; 64], 64).err(),
        Some(refused(Syndrome::RegisterPort))
    );
    assert_eq!(
        access(&mut node, 0x5004, 0, &data, 64).err(),
        Some(refused(Syndrome::RegisterReadOnly))
    );
}

#[test]
fn an_event_queue_that_overruns_stops_the_firmware() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    node.create_eq(4, 1 << COMMAND, 0);
    for _ in 0..16 {
        node.command(&NopIn::new()).unwrap();
    }
    assert_eq!(node.model.health_syndrome(), 0);
    node.command(&NopIn::new()).unwrap();
    assert_eq!(node.model.health_syndrome(), 0x0c);
}
