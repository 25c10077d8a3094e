//! What happens while a device is in use: page requests, events, health, nonsense.

mod support;

use std::time::Duration;

use bareverbs_core::error::{CommandFailure, Millis};
use bareverbs_core::{
    AsyncEvent, CommandError, Config, Cqs, Device, DeviceError, Gid, GidEntry, PageChunks,
    Platform, Qps, Resources, RoceVersion, Srqs,
};
use bareverbs_firmware_cmds::eq::Eqe;
use bareverbs_firmware_cmds::event::{Event, EventType, PortChange, Queue};
use bareverbs_firmware_cmds::hca::NopIn;
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::numbers::{Cqn, Qpn, Srqn};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;
use support::Fake;
use support::firmware::Action;
use support::random::Random;

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<4>, PageChunks<3>>;

fn open<'a>(fake: &'a Fake, memory: &'a mut Memory) -> Device<'a, &'a Fake> {
    fake.lock().boot_pages = 10;
    fake.lock().init_pages = 10;
    let mut config = Config::DEFAULT;
    config.health_interval = Duration::from_millis(1);
    config.health_stall = Duration::from_millis(10);
    config.command_timeout = Duration::from_millis(5);
    config.teardown_timeout = Duration::from_millis(5);
    let device = Device::open(fake, config, memory.storage()).expect("bring-up");
    fake.lock().history.clear();
    device
}

/// Lets firmware and driver run.
fn run(fake: &Fake, device: &Device<'_, &Fake>) {
    for _ in 0..20 {
        fake.relax();
        device.poll().expect("healthy");
    }
}

fn request(fake: &Fake, pages: i32) {
    fake.event(page_request(0, pages));
}

#[test]
fn pages_are_given_and_taken_back_on_request() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 620);
    assert_eq!(fake.lock().pages.len(), 620);
    request(&fake, -100);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 520);
    request(&fake, i32::MIN);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 0);
    assert!(fake.lock().pages.is_empty());
    request(&fake, 0);
    run(&fake, &device);
    // All chunks went back when they were empty, and come again.
    request(&fake, 1);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 1);
    device.close().expect("orderly");
    fake.assert_clean();
}

/// The firmware asks for pages, which a command waits for, while the driver is still taking back what it offered before.
#[test]
fn pages_asked_for_while_others_are_taken_back_are_given() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    request(&fake, -5);
    device.poll().expect("MANAGE_PAGES is under way");
    request(&fake, 8);
    device.poll().expect("and this comes before its answer");
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20 - 5 + 8);
    // Nor does the one count against the other when both come at once.
    fake.lock().history.clear();
    request(&fake, -5);
    request(&fake, 8);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 23 - 5 + 8);
    let given: Vec<u32> = fake
        .lock()
        .history
        .iter()
        .filter(|posted| posted.op_mod == 1)
        .map(|posted| posted.dword(12))
        .collect();
    assert_eq!(given, [8]);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn a_request_that_cannot_be_met_is_answered() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    fake.lock().budget = 0;
    request(&fake, 1000);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20);
    let posted = fake.lock().history.pop().expect("answered");
    assert!(
        posted.is(Opcode::ManagePages) && posted.op_mod == 0,
        "the firmware gets: cannot give"
    );
    assert_eq!(device.page_faults(), (1, 0));
    // And again when the storage is full: 3 chunks of 512 pages.
    fake.lock().budget = usize::MAX;
    request(&fake, 3 * 512);
    run(&fake, &device);
    assert_eq!(device.page_faults(), (2, 0));
    assert_eq!(device.pages_given(), 20);
    // Less is still possible.
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 620);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn an_address_that_the_firmware_does_not_have_frees_nothing() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    let page = *fake.lock().pages.first().expect("pages");
    // Not its own, not aligned, not there at all, and twice the same.
    fake.lock().foreign_pages = vec![
        0x1000,
        page + 4096 + 8,
        u64::MAX - 4095,
        page + (32 << 12),
        page,
        page,
    ];
    fake.lock().pages.remove(&page);
    request(&fake, -7);
    run(&fake, &device);
    assert_eq!(
        device.pages_given(),
        13,
        "seven real pages in the end, one of them among the lies"
    );
    assert_eq!(device.page_faults(), (0, 5));
    assert_eq!(fake.live(), live);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn only_as_many_pages_are_taken_back_as_the_firmware_says() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let pages: Vec<u64> = fake.lock().pages.iter().copied().take(3).collect();
    let list = pages.clone();
    let mut answered = false;
    fake.script(move |posted| {
        if !posted.is(Opcode::ManagePages) || posted.op_mod != 2 || answered {
            return Action::Normal;
        }
        answered = true;
        // It says one, and leaves more behind it; the next time it says none.
        let mut output = vec![0; 16];
        output[11] = 1;
        output.extend(list.iter().flat_map(|page| page.to_be_bytes()));
        Action::Answer(output)
    });
    fake.lock().pages.remove(&pages[0]);
    fake.lock().keep_pages = true;
    request(&fake, -3);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 19);
    assert_eq!(device.page_faults(), (0, 0));
    // More than was asked for is ignored.
    let mut lied = false;
    fake.script(move |posted| {
        if !posted.is(Opcode::ManagePages) || posted.op_mod != 2 || lied {
            return Action::Normal;
        }
        lied = true;
        let mut output = vec![0; 16];
        output[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        Action::Answer(output)
    });
    request(&fake, -3);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 19);
    fake.lock().keep_pages = false;
    fake.script(|_| Action::Normal);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn pages_that_the_firmware_refuses_are_not_given() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    fake.script(|posted| {
        if posted.is(Opcode::ManagePages) && posted.op_mod == 1 {
            Action::Fail(Status::BadParameter, 3)
        } else {
            Action::Normal
        }
    });
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20);
    assert_eq!(fake.live(), live, "their memory was given back");
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn several_functions_are_kept_apart() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    for function_id in [0, 5] {
        fake.event(page_request(function_id, 8));
    }
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    let ids: Vec<u32> = fake
        .lock()
        .history
        .iter()
        .map(|posted| posted.dword(8) & 0xffff)
        .collect();
    assert_eq!(ids, [0, 5]);
    // The function goes. The firmware knows no pages of it any more, so that there is nothing to ask for.
    let live = fake.live();
    fake.lock().history.clear();
    fake.lock().release_function(5);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 28);
    assert!(fake.live() < live, "its memory is free");
    assert!(fake.opcodes().is_empty(), "{:?}", fake.opcodes());
    // It may come again.
    fake.event(page_request(5, 8));
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    // A function that never had pages has none to release, and the driver's own function is not gone.
    for other in [9, 0] {
        fake.event(Event::PageRequest {
            function_id: other,
            embedded_cpu: false,
            release_all: true,
            pages: 0,
        });
    }
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    device.close().expect("orderly");
    fake.assert_clean();
}

fn page_request(function_id: u16, pages: i32) -> Event {
    Event::PageRequest {
        function_id,
        embedded_cpu: false,
        release_all: false,
        pages,
    }
}

/// A function goes while the firmware still works on pages for it, and comes again at once.
#[test]
fn a_function_that_goes_leaves_no_pages_behind() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    fake.script(|posted| {
        if posted.is(Opcode::ManagePages) && posted.op_mod == 1 {
            return Action::After(Duration::from_micros(5), Box::new(Action::Normal));
        }
        Action::Normal
    });
    fake.event(page_request(3, 8));
    device.poll().expect("MANAGE_PAGES is under way");
    fake.event(page_request(3, -8));
    fake.event(Event::PageRequest {
        function_id: 3,
        embedded_cpu: false,
        release_all: true,
        pages: 0,
    });
    fake.event(page_request(3, 4));
    run(&fake, &device);
    assert_eq!(device.pages_given(), 24);
    let posted = |fake: &Fake| -> Vec<(u16, u32)> {
        let history = &fake.lock().history;
        let each = history.iter().map(|one| (one.op_mod, one.dword(12)));
        each.collect()
    };
    assert_eq!(posted(&fake), [(1, 8), (1, 4)]);
    // More functions come and go than can have pages at a time.
    for function in 10..60 {
        fake.event(page_request(function, 3));
        run(&fake, &device);
        fake.lock().release_function(function);
        run(&fake, &device);
    }
    assert_eq!(device.page_faults(), (0, 0));
    fake.lock().release_function(3);
    run(&fake, &device);
    assert_eq!(fake.live(), live);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn events_become_what_libibverbs_reports() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let qpn = Qpn::from_low_bits(0x1234);
    let srqn = Srqn::from_low_bits(0x77);
    let cqn = Cqn::from_low_bits(9);
    let queue = |what, queue| Event::Queue { what, queue };
    let port = |change| Event::PortChange { port: 1, change };
    let cases = [
        (port(PortChange::Active), AsyncEvent::PortActive { port: 1 }),
        (port(PortChange::Down), AsyncEvent::PortError { port: 1 }),
        (
            port(PortChange::Initialized),
            AsyncEvent::PortInitialized { port: 1 },
        ),
        (port(PortChange::Lid), AsyncEvent::LidChange { port: 1 }),
        (port(PortChange::Pkey), AsyncEvent::PkeyChange { port: 1 }),
        (port(PortChange::Guid), AsyncEvent::GidChange { port: 1 }),
        (
            port(PortChange::ClientReregister),
            AsyncEvent::ClientReregister { port: 1 },
        ),
        (
            Event::CqError { cqn, syndrome: 1 },
            AsyncEvent::CqError { cqn, syndrome: 1 },
        ),
        (
            queue(EventType::PathMigrated, Queue::Qp(qpn)),
            AsyncEvent::PathMigrated { qpn },
        ),
        (
            queue(EventType::PathMigrationFailed, Queue::Qp(qpn)),
            AsyncEvent::PathMigrationError { qpn },
        ),
        (
            queue(EventType::CommunicationEstablished, Queue::Qp(qpn)),
            AsyncEvent::CommunicationEstablished { qpn },
        ),
        (
            queue(EventType::SqDrained, Queue::Qp(qpn)),
            AsyncEvent::SqDrained { qpn },
        ),
        (
            queue(EventType::WqCatastrophic, Queue::Qp(qpn)),
            AsyncEvent::QpFatal { qpn },
        ),
        (
            queue(EventType::WqInvalidRequest, Queue::Qp(qpn)),
            AsyncEvent::QpRequestError { qpn },
        ),
        (
            queue(EventType::WqAccessError, Queue::Qp(qpn)),
            AsyncEvent::QpAccessError { qpn },
        ),
        (
            queue(EventType::SrqLastWqe, Queue::Qp(qpn)),
            AsyncEvent::QpLastWqeReached { qpn },
        ),
        (
            queue(EventType::DctKeyViolation, Queue::Dct(qpn.number())),
            AsyncEvent::DctKeyViolation { dctn: qpn },
        ),
        (
            queue(EventType::SrqCatastrophic, Queue::Srq(srqn)),
            AsyncEvent::SrqError { srqn },
        ),
        (
            queue(EventType::SrqLimit, Queue::Srq(srqn)),
            AsyncEvent::SrqLimitReached { srqn },
        ),
    ];
    for (event, expected) in cases {
        fake.event(event);
        device.poll().expect("healthy");
        assert_eq!(device.next_async_event(), Some(expected));
        assert_eq!(device.next_async_event(), None);
    }
    // Invalid events are counted, and have no other effect.
    let (_, before) = device.lost_and_unknown_events();
    fake.event(Event::Other {
        what: EventType::Unknown(0x7f),
        sub_type: 3,
    });
    fake.event(port(PortChange::Unknown(12)));
    fake.event(queue(
        EventType::SqDrained,
        Queue::Unknown { kind: 9, number: 1 },
    ));
    fake.event(Event::Completion(Cqn::from_low_bits(0x999)));
    fake.event(Event::Command { slots: u32::MAX });
    device.poll().expect("healthy");
    assert_eq!(device.lost_and_unknown_events(), (0, before + 4));
    assert_eq!(device.next_async_event(), None);
}

#[test]
fn the_event_ring_wraps_and_events_that_are_not_fetched_are_counted() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    for round in 0..5000u32 {
        let qpn = Qpn::from_low_bits(round);
        fake.event(Event::Queue {
            what: EventType::SqDrained,
            queue: Queue::Qp(qpn),
        });
        device.poll().expect("healthy");
        assert_eq!(
            device.next_async_event(),
            Some(AsyncEvent::SqDrained { qpn }),
            "round {round}"
        );
    }
    // A ring nearly full at once.
    for number in 0..500u32 {
        let qpn = Qpn::from_low_bits(number);
        fake.event(Event::Queue {
            what: EventType::SqDrained,
            queue: Queue::Qp(qpn),
        });
    }
    device.poll().expect("healthy");
    let taken = std::iter::from_fn(|| device.next_async_event()).count();
    let (lost, _) = device.lost_and_unknown_events();
    assert_eq!(taken as u64 + lost, 500);
    assert!(taken >= 64);
    // The doorbell was rung more than once on the way.
    let inner = fake.lock();
    let (_, last) = inner.doorbells.last().expect("doorbells");
    assert_eq!(last >> 24, 1);
    let since: Vec<_> = inner
        .doorbells
        .iter()
        .rev()
        .take(8)
        .map(|(_, value)| value & 0xff_ffff)
        .collect();
    assert!(
        since.windows(2).all(|pair| pair[0] - pair[1] <= 64),
        "{since:?}"
    );
}

#[test]
fn health_problems_are_fatal_for_good() {
    type Mishap = fn(&Fake);
    let cases: [(Mishap, DeviceError); 4] = [
        (|fake| fake.lock().gone = true, DeviceError::Gone),
        (
            |fake| {
                fake.set_register(registers::HEALTH + 0x38, 1 << 31);
                fake.set_register(registers::HEALTH + 0x3c, 0x0108_0042);
            },
            DeviceError::Fatal {
                syndrome: 8,
                extended: 0x42,
            },
        ),
        (
            |fake| fake.set_register(registers::CMDQ_ADDR_L_SZ, 7 << 8 | 0x56),
            DeviceError::Disabled { nic_state: 7 },
        ),
        (
            |fake| fake.lock().alive = false,
            DeviceError::Stuck { stalled: Millis(0) },
        ),
    ];
    for (happen, expected) in cases {
        let fake = Fake::new();
        let mut memory = Memory::new();
        let device = open(&fake, &mut memory);
        run(&fake, &device);
        happen(&fake);
        let error = loop {
            fake.lock().now += Duration::from_micros(500);
            fake.relax();
            if let Err(error) = device.poll() {
                break error;
            }
        };
        assert_eq!(
            std::mem::discriminant(&error),
            std::mem::discriminant(&expected),
            "{error}"
        );
        if !matches!(error, DeviceError::Stuck { .. }) {
            assert_eq!(error, expected);
        }
        assert_eq!(
            device.next_async_event(),
            Some(AsyncEvent::DeviceFatal(error))
        );
        // What is wrong may go away; the verdict does not.
        fake.lock().gone = false;
        fake.set_register(registers::HEALTH + 0x3c, 0);
        assert_eq!(device.poll(), Err(error));
        let refused = device.execute(&NopIn::new()).unwrap_err();
        assert!(
            matches!(refused, CommandError { failure: CommandFailure::Device(e), .. } if e == error)
        );
        assert!(
            fake.lock()
                .history
                .iter()
                .all(|posted| !posted.is(Opcode::Nop)),
            "a dead device was still talked to"
        );
        assert_eq!(device.next_async_event(), None);
        assert!(device.close().is_err());
        fake.assert_no_faults();
    }
}

/// Linux reports a health counter that stands still (`poll_health`, "reached miss count"), and goes on: firmware may be busy
/// with its own dump or update, and messages do not pass through it.
#[test]
fn a_health_counter_that_stands_still_is_not_fatal_by_itself() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    fake.lock().alive = false;
    for _ in 0..100 {
        fake.lock().now += Duration::from_secs(1);
        fake.relax();
        device.poll().expect("it goes on");
    }
    device
        .execute(&NopIn::new())
        .expect("commands are answered");
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn a_device_that_goes_between_two_registers_is_gone() {
    for reads in 0..20 {
        let fake = Fake::new();
        let mut memory = Memory::new();
        let device = open(&fake, &mut memory);
        run(&fake, &device);
        fake.lock().reads_left = Some(reads);
        let error = loop {
            fake.lock().now += Duration::from_micros(500);
            fake.relax();
            if let Err(error) = device.poll() {
                break error;
            }
        };
        assert_eq!(error, DeviceError::Gone, "after {reads} registers");
    }
}

#[test]
fn a_command_that_waits_learns_of_a_fatal_error() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let mut pending = device
        .post(&NopIn::new(), bareverbs_core::TailIn::None, 0)
        .expect("posted");
    fake.set_register(registers::HEALTH + 0x38, 1 << 31);
    fake.set_register(registers::HEALTH + 0x3c, 0x0001_0000);
    fake.lock().now += Duration::from_millis(2);
    let error = device
        .poll_command(&mut pending, &mut [])
        .expect("over")
        .unwrap_err();
    assert_eq!(
        error.failure,
        CommandFailure::Device(DeviceError::Fatal {
            syndrome: 1,
            extended: 0
        })
    );
}

#[test]
fn a_syndrome_without_a_reset_request_is_only_reported() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    fake.set_register(registers::HEALTH + 0x3c, 0x0010_0000);
    for _ in 0..10 {
        fake.lock().now += Duration::from_millis(2);
        fake.relax();
        device.poll().expect("still working");
    }
}

/// Executes all queries, for the results of invalid answers.
fn ask_everything(device: &Device<'_, &Fake>) {
    let caps = device.capabilities();
    let _ = (
        caps.max_qp(),
        caps.max_qp_wr(),
        caps.max_cq(),
        caps.max_cqe(),
        caps.max_srq(),
    );
    let _ = (
        caps.max_srq_wr(),
        caps.max_mr(),
        caps.max_pd(),
        caps.pkey_table_len(),
    );
    let _ = (
        caps.max_initiator_depth(),
        caps.max_responder_resources(),
        caps.roce_versions(),
    );
    let _ = device.query_port();
    let _ = device.query_gid(0);
    let _ = device.query_pkey(0);
    let _ = device.query_infiniband_gid(0);
    let _ = device
        .query_adapter()
        .map(|adapter| adapter.board_id().len());
    let _ = device.query_special_contexts();
    let _ = device.set_gid(
        0,
        GidEntry {
            gid: Gid::link_local([2, 0, 0, 0, 0, 1]),
            version: RoceVersion::V2,
            vlan: None,
            mac: [2, 0, 0, 0, 0, 1],
        },
    );
    while device.next_async_event().is_some() {}
}

#[test]
fn the_device_may_write_anything() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let fake = Fake::with(|inner| inner.lies = true);
        let mut memory = Memory::new();
        // Even seeds get through bring-up and meet garbage then; odd ones meet it on the way.
        let garbage = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(seed % 2 == 1));
        let on = garbage.clone();
        let mut answers = Random(seed ^ 0xabcd);
        fake.script(move |posted| {
            if !on.load(std::sync::atomic::Ordering::Relaxed) || answers.next().is_multiple_of(3) {
                return Action::Normal;
            }
            let mut output = vec![0; posted.output_len];
            answers.fill(&mut output);
            if !answers.next().is_multiple_of(8) {
                output[0] = 0;
            }
            Action::Answer(output)
        });
        let mut config = Config::DEFAULT;
        config.command_timeout = Duration::from_micros(200);
        config.teardown_timeout = Duration::from_micros(200);
        config.initialize_timeout = Duration::from_micros(200);
        let Ok(device) = Device::open(&fake, config, memory.storage()) else {
            continue;
        };
        garbage.store(true, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..50 {
            let mut entry = Eqe::ZERO;
            random.fill(&mut entry.0);
            if random.next().is_multiple_of(2) {
                // Types that mean something.
                entry.set_event_type((random.next() % 0x28) as u8);
            }
            fake.lock().raw_event(entry);
            let _ = device.poll();
            fake.relax();
        }
        ask_everything(&device);
        let _ = device.close();
    }
}
