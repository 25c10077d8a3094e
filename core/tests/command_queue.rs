//! The command queue against a firmware that follows a script.

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bareverbs_core::error::{BadOutput, CommandFailure, DeviceError};
use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs, TailIn};
use bareverbs_firmware_cmds::counter::{QueryQCounterIn, QueryQCounterOut};
use bareverbs_firmware_cmds::event::Event;
use bareverbs_firmware_cmds::hca::{NopIn, QueryAdapterIn};
use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::{DeliveryStatus, Status};
use support::Fake;
use support::firmware::Action;

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<4>, PageChunks<8>>;

fn open<'a>(fake: &'a Fake, memory: &'a mut Memory, config: Config) -> Device<'a, &'a Fake> {
    let device = Device::open(fake, config, memory.storage()).expect("bring-up");
    fake.lock().history.clear();
    device
}

fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(5);
    config.teardown_timeout = Duration::from_millis(5);
    config
}

#[test]
fn several_commands_are_in_flight_and_answers_come_in_any_order() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, Config::DEFAULT);
    // The first posted is answered last; each answer names its command.
    fake.script(|posted| {
        let id = posted.input[0x1f];
        let mut output = vec![0; size_of::<QueryQCounterOut>()];
        output[0x10] = id;
        Action::After(
            Duration::from_micros(100 - 10 * u64::from(id)),
            Box::new(Action::Answer(output)),
        )
    });
    let mut pending = Vec::new();
    for id in 0..5u8 {
        let mut query = QueryQCounterIn::new();
        query.set_counter_set_id(id);
        pending.push((id, device.post(&query, TailIn::None, 0).expect("posted")));
    }
    let slots: BTreeSet<u8> = fake
        .lock()
        .history
        .iter()
        .map(|posted| posted.slot)
        .collect();
    assert_eq!(slots.len(), 5, "each command has its own slot");
    let mut order = Vec::new();
    while order.len() < 5 {
        for (id, command) in &mut pending {
            if order.contains(id) {
                continue;
            }
            if let Some(answer) = device.poll_command(command, &mut []) {
                assert_eq!(answer.expect("answered").0[0x10], *id);
                order.push(*id);
            }
        }
        bareverbs_core::Platform::relax(&&fake);
    }
    assert_eq!(order, [4, 3, 2, 1, 0]);
    // A ticket is used up by its answer.
    let error = device
        .poll_command(&mut pending[0].1, &mut [])
        .expect("over")
        .unwrap_err();
    assert_eq!(error.failure, CommandFailure::UnknownTicket);
    // Nor does it get the answer of the command that has its slot now.
    fake.script(|_| Action::Normal);
    let mut newer: Vec<_> = (0..5)
        .map(|_| device.post(&NopIn::new(), TailIn::None, 0).expect("slot"))
        .collect();
    for _ in 0..3 {
        bareverbs_core::Platform::relax(&&fake);
    }
    for (_, used) in &mut pending {
        let stale = device.poll_command(used, &mut []).expect("over");
        assert_eq!(stale.unwrap_err().failure, CommandFailure::UnknownTicket);
    }
    for command in &mut newer {
        device
            .poll_command(command, &mut [])
            .expect("answered")
            .expect("nop");
    }
    drop(device);
    fake.assert_clean();
}

#[test]
fn a_command_without_an_answer_times_out_and_its_slot_is_retired() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, quick());
    let dropped = Arc::new(Mutex::new(None));
    let seen = dropped.clone();
    // Answered long after the driver has given up, while its slot and its memory must still be there.
    fake.script(move |posted| {
        let mut dropped = seen.lock().unwrap();
        if dropped.is_none() {
            *dropped = Some(posted.slot);
            return Action::After(
                Duration::from_millis(20),
                Box::new(Action::Answer(vec![0; 0x110])),
            );
        }
        Action::Normal
    });
    let before = fake.lock().now;
    let error = device.execute(&QueryAdapterIn::new()).unwrap_err();
    let waited = fake.lock().now - before;
    assert!(
        matches!(error.failure, CommandFailure::Timeout { .. }),
        "{error}"
    );
    assert_eq!(error.opcode, Opcode::QueryAdapter);
    assert!(
        waited >= quick().command_timeout && waited < 2 * quick().command_timeout,
        "{waited:?}"
    );
    let retired = dropped.lock().unwrap().expect("posted");
    for _ in 0..40 {
        device
            .execute(&NopIn::new())
            .expect("other slots still work");
    }
    assert!(
        fake.lock().history[1..]
            .iter()
            .all(|posted| posted.slot != retired),
        "a retired slot was used again"
    );
    // Let the late answer arrive.
    fake.lock().now += Duration::from_millis(30);
    device.execute(&NopIn::new()).expect("works");
    fake.assert_no_faults();
    drop(device);
    fake.assert_clean();
}

#[test]
fn with_one_ordinary_slot_retired_the_queue_is_full() {
    let fake = Fake::new();
    fake.set_register(
        bareverbs_firmware_cmds::init_segment::CMDQ_ADDR_L_SZ,
        1 << 4 | 6,
    );
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, quick());
    fake.script(|posted| {
        if posted.is(Opcode::Nop) {
            Action::Drop
        } else {
            Action::Normal
        }
    });
    let error = device.execute(&NopIn::new()).unwrap_err();
    assert!(matches!(error.failure, CommandFailure::Timeout { .. }));
    let before = fake.lock().now;
    let error = device.execute(&QueryAdapterIn::new()).unwrap_err();
    assert!(
        matches!(error.failure, CommandFailure::QueueFull { .. }),
        "{error}"
    );
    assert!(fake.lock().now - before < 2 * quick().command_timeout);
    assert!(
        fake.lock().history.iter().all(|posted| posted.slot == 0),
        "the page slot took an ordinary command"
    );
    assert!(device.close().is_err());
    // The firmware obeyed the order to disable itself, so even the retired slot's memory came back.
    fake.assert_clean();
}

#[test]
fn tokens_are_never_zero_and_change_with_each_use() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, Config::DEFAULT);
    for _ in 0..600 {
        device.execute(&NopIn::new()).expect("nop");
    }
    let tokens: Vec<u8> = fake
        .lock()
        .history
        .iter()
        .map(|posted| posted.token)
        .collect();
    assert_eq!(tokens.len(), 600);
    assert!(tokens.iter().all(|&token| token != 0));
    assert!(tokens.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 255);
}

#[test]
fn a_device_that_vanishes_is_noticed_at_once() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, Config::DEFAULT);
    fake.script(|_| Action::Vanish);
    let before = fake.lock().now;
    let error = device.execute(&NopIn::new()).unwrap_err();
    assert_eq!(error.failure, CommandFailure::Device(DeviceError::Gone));
    assert!(
        fake.lock().now - before < Duration::from_millis(1),
        "waited for a device that is gone"
    );
    // From now on nothing is tried any more.
    let posted = fake.lock().history.len();
    assert_eq!(
        device.execute(&NopIn::new()).unwrap_err().failure,
        CommandFailure::Device(DeviceError::Gone)
    );
    assert_eq!(device.poll(), Err(DeviceError::Gone));
    assert_eq!(fake.lock().history.len(), posted);
    assert_eq!(
        device.next_async_event(),
        Some(bareverbs_core::AsyncEvent::DeviceFatal(DeviceError::Gone))
    );
    let before = fake.lock().now;
    let kept = fake.live();
    let error = device.close().unwrap_err();
    assert_eq!(
        error.failure,
        bareverbs_core::CloseFailure::Device(DeviceError::Gone)
    );
    assert_eq!(
        fake.lock().now,
        before,
        "close waited for a device that is gone"
    );
    assert_eq!(
        error.bytes_quarantined, kept as u64,
        "what stays allocated is accounted for"
    );
    assert_eq!(error.pages_lost, 740);
    fake.assert_no_faults();
}

#[test]
fn pages_are_supplied_while_a_command_waits_for_them() {
    let fake = Arc::new(Fake::new());
    let mut memory = Memory::new();
    let device = Device::open(&*fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    fake.lock().history.clear();
    let given_before = device.pages_given();
    // The firmware answers the NOP only after it got 100 pages, which it asks for through the event queue.
    fake.script(|posted| match Opcode::from_number(posted.opcode) {
        Some(Opcode::Nop) => Action::After(Duration::from_micros(500), Box::new(Action::Normal)),
        _ => Action::Normal,
    });
    // All ordinary slots are taken.
    let mut pending: Vec<_> = (0..31)
        .map(|_| device.post(&NopIn::new(), TailIn::None, 0).expect("slot"))
        .collect();
    let error = device.post(&NopIn::new(), TailIn::None, 0).unwrap_err();
    assert!(matches!(error.failure, CommandFailure::QueueFull { .. }));
    fake.event(Event::PageRequest {
        function_id: 0,
        embedded_cpu: false,
        release_all: false,
        pages: 100,
    });
    let mut given_while_waiting = false;
    let mut open = pending.len();
    while open > 0 {
        pending.retain_mut(|command| {
            device
                .poll_command(command, &mut [])
                .map(|answer| answer.expect("nop"))
                .is_none()
        });
        if !pending.is_empty() && device.pages_given() == given_before + 100 {
            given_while_waiting = true;
        }
        open = pending.len();
        bareverbs_core::Platform::relax(&&*fake);
    }
    assert!(
        given_while_waiting,
        "the pages came after the commands that waited for them"
    );
    let inner = fake.lock();
    let pages = inner
        .history
        .iter()
        .find(|posted| posted.is(Opcode::ManagePages))
        .expect("pages were given");
    assert_eq!(pages.slot, 31, "pages go through the last slot");
    assert!(
        inner
            .history
            .iter()
            .filter(|posted| posted.is(Opcode::Nop))
            .all(|posted| posted.slot < 31)
    );
    drop(inner);
    drop(device);
    fake.assert_clean();
}

#[test]
fn refusals_are_reported_with_their_reason() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, Config::DEFAULT);
    fake.script(|_| Action::Fail(Status::LimitExceeded, 0x1234_5678));
    let error = device.execute(&NopIn::new()).unwrap_err();
    let status = Status::LimitExceeded;
    let syndrome = 0x1234_5678;
    assert_eq!(error.failure, CommandFailure::Status { status, syndrome });
    assert_eq!(
        error.to_string(),
        "NOP(0x80d) op_mod 0x0: failed with status LIM_ERR(0x08): a limit would be exceeded, syndrome 0x12345678"
    );
    assert!(!error.may_still_happen());
    fake.script(|_| Action::Delivery(DeliveryStatus::Token));
    let error = device.execute(&NopIn::new()).unwrap_err();
    assert_eq!(
        error.failure,
        CommandFailure::Delivery(DeliveryStatus::Token)
    );
    assert!(error.to_string().contains("TOKEN_ERR"), "{error}");
    fake.script(|_| Action::Normal);
    device.execute(&NopIn::new()).expect("the slot works again");
}

fn translation_list(fake: &Fake, entries: usize) {
    let mut memory = Memory::new();
    let device = open(fake, &mut memory, Config::DEFAULT);
    let at_rest = fake.live();
    let mut entry = |index: usize| 0x5_0000_0000 + index as u64 * 8 + 3;
    device
        .execute_with(
            &CreateMkeyIn::new(),
            TailIn::Qwords(entries, &mut entry),
            &mut [],
        )
        .expect("mkey");
    let inner = fake.lock();
    let posted = inner.history.last().expect("posted");
    assert_eq!(posted.input.len(), 0x110 + entries * 8);
    for (index, qword) in posted.input[0x110..].chunks(8).enumerate() {
        assert_eq!(
            u64::from_be_bytes(qword.try_into().unwrap()),
            0x5_0000_0000 + index as u64 * 8 + 3
        );
    }
    drop(inner);
    assert_eq!(fake.live(), at_rest, "a long chain's memory is given back");
    drop(device);
    fake.assert_clean();
}

#[test]
fn long_chains_take_thousands_of_blocks() {
    translation_list(&Fake::new(), 100_000);
}

#[test]
fn long_chains_take_what_pieces_there_are() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    // The queues and chunks are allocated while memory is whole.
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    fake.lock().largest = 256 << 10;
    let mut entry = |index: usize| index as u64;
    device
        .execute_with(
            &CreateMkeyIn::new(),
            TailIn::Qwords(100_000, &mut entry),
            &mut [],
        )
        .expect("in pieces of 256 KiB");
    fake.lock().largest = 4096;
    let at_rest = fake.live();
    let error = device
        .execute_with(
            &CreateMkeyIn::new(),
            TailIn::Qwords(100_000, &mut entry),
            &mut [],
        )
        .unwrap_err();
    assert!(
        matches!(error.failure, CommandFailure::Memory(_)),
        "{error}"
    );
    assert_eq!(fake.live(), at_rest, "the pieces that there were went back");
    let error = device
        .execute_with(
            &CreateMkeyIn::new(),
            TailIn::Qwords(usize::MAX / 2, &mut entry),
            &mut [],
        )
        .unwrap_err();
    assert!(
        matches!(error.failure, CommandFailure::TooLong { .. }),
        "{error}"
    );
    drop(device);
    fake.assert_clean();
}

#[test]
fn long_answers_are_cut_at_what_was_asked_for() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, Config::DEFAULT);
    fake.script(|posted| {
        Action::Answer(
            (0..posted.output_len)
                .map(|at| if at < 8 { 0 } else { at as u8 })
                .collect(),
        )
    });
    let mut tail = [0xaa; 700];
    let answer = device
        .execute_with(&QueryAdapterIn::new(), TailIn::None, &mut tail)
        .expect("answer");
    for (at, &byte) in answer.0.iter().enumerate().skip(8) {
        assert_eq!(byte, at as u8);
    }
    for (at, &byte) in tail.iter().enumerate() {
        assert_eq!(byte, (0x110 + at) as u8);
    }
}

#[test]
fn signatures_are_verified_where_they_were_negotiated() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let mut config = Config::DEFAULT;
    config.command_signatures = true;
    let device = open(&fake, &mut memory, config);
    assert!(fake.lock().signing);
    device
        .execute(&QueryAdapterIn::new())
        .expect("signed answer");
    let cases = [
        (Action::BadEntrySignature, BadOutput::EntrySignature),
        (
            Action::BadBlockSignature,
            BadOutput::BlockSignature { block: 0 },
        ),
    ];
    for (action, expected) in cases {
        fake.script(move |_| action.clone());
        let error = device.execute(&QueryAdapterIn::new()).unwrap_err();
        assert_eq!(
            error.failure,
            CommandFailure::BadOutput(expected),
            "{error}"
        );
    }
    fake.script(|_| Action::BadToken);
    let error = device.execute(&QueryAdapterIn::new()).unwrap_err();
    assert!(
        matches!(
            error.failure,
            CommandFailure::BadOutput(BadOutput::EntryToken { .. })
        ),
        "{error}"
    );
    fake.script(|_| Action::Normal);
    device
        .execute(&QueryAdapterIn::new())
        .expect("the slot works again");
}

#[test]
fn a_command_that_is_not_polled_frees_its_slot_in_the_end() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, quick());
    for _ in 0..31 {
        let _abandoned = device.post(&NopIn::new(), TailIn::None, 0).expect("slot");
    }
    assert!(device.post(&NopIn::new(), TailIn::None, 0).is_err());
    bareverbs_core::Platform::relax(&&fake);
    fake.lock().now += 3 * quick().command_timeout;
    device.execute(&NopIn::new()).expect("a slot came back");
    drop(device);
    fake.assert_clean();
}

#[test]
fn an_implausible_queue_is_refused() {
    for (log_size, log_stride) in [(0, 6), (5, 5), (6, 6), (5, 8), (15, 15)] {
        let fake = Fake::new();
        fake.set_register(
            bareverbs_firmware_cmds::init_segment::CMDQ_ADDR_L_SZ,
            log_size << 4 | log_stride,
        );
        let mut memory = Memory::new();
        let error = Device::open(&fake, Config::DEFAULT, memory.storage()).unwrap_err();
        let (log_size, log_stride) = (log_size as u8, log_stride as u8);
        assert_eq!(
            error.failure,
            bareverbs_core::OpenFailure::QueueGeometry {
                log_size,
                log_stride
            }
        );
        fake.assert_clean();
    }
}

#[test]
fn page_commands_have_reserved_mailboxes() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory, quick());
    let before = device.pages_given();
    // Every block that ordinary commands may have is taken, and the platform has no more memory.
    fake.lock().budget = 0;
    fake.script(|posted| match Opcode::from_number(posted.opcode) {
        Some(Opcode::QueryAdapter) => {
            Action::After(Duration::from_millis(1), Box::new(Action::Normal))
        }
        _ => Action::Normal,
    });
    let mut pending = Vec::new();
    let refused = loop {
        match device.post(&QueryAdapterIn::new(), TailIn::None, 1500) {
            Ok(command) => pending.push(command),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused.failure, CommandFailure::Memory(_)),
        "{refused}"
    );
    assert!(pending.len() > 10);
    fake.event(Event::PageRequest {
        function_id: 0,
        embedded_cpu: false,
        release_all: false,
        pages: 5,
    });
    for _ in 0..20 {
        device.poll().expect("healthy");
        bareverbs_core::Platform::relax(&&fake);
    }
    assert_eq!(device.pages_given(), before + 5);
    fake.lock().budget = usize::MAX;
    while !pending.is_empty() {
        pending.retain_mut(|command| device.poll_command(command, &mut []).is_none());
        bareverbs_core::Platform::relax(&&fake);
    }
    drop(device);
    fake.assert_clean();
}
