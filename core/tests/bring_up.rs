//! Bring-up and teardown, step by step, against a firmware that follows a script.

mod support;

use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::platform::DmaError;
use bareverbs_core::{
    CloseFailure, Config, Cqs, Device, DeviceError, DeviceSlot, FunctionKind, OpenError,
    OpenFailure, OpenStep, PageChunk, PageChunks, Qps, Resources, Srqs, Storage,
};
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;
use support::Fake;
use support::firmware::Action;
use support::random::Random;

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<4>, PageChunks<8>>;

fn quick() -> Config {
    let mut config = Config::DEFAULT;
    config.initialize_timeout = Duration::from_millis(5);
    config.command_timeout = Duration::from_millis(5);
    config.teardown_timeout = Duration::from_millis(5);
    config
}

fn open_error(fake: &Fake) -> OpenError {
    let mut memory = Memory::new();
    Device::open(fake, quick(), memory.storage())
        .map(|_| ())
        .expect_err("bring-up succeeded")
}

const ETHERNET: [Opcode; 17] = [
    Opcode::EnableHca,
    Opcode::SetIssi,
    Opcode::QueryPages,
    Opcode::ManagePages,
    Opcode::AccessRegister,
    Opcode::QueryHcaCap,
    Opcode::SetHcaCap,
    Opcode::QueryHcaCap,
    Opcode::QueryHcaCap,
    Opcode::QueryHcaCap,
    Opcode::SetHcaCap,
    Opcode::QueryPages,
    Opcode::ManagePages,
    Opcode::InitHca,
    Opcode::AllocUar,
    Opcode::CreateEq,
    // The firmware may require pages for this, and requests them by an event.
    Opcode::ModifyNicVportContext,
];

#[test]
fn an_ethernet_function_is_ready_after_seventeen_commands() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    assert_eq!(fake.opcodes(), ETHERNET);
    assert_eq!(device.commands_executed(), 17);
    assert_eq!(device.capabilities().issi, 1);
    assert_eq!(device.capabilities().firmware.to_string(), "16.35.4030");
    assert!(device.capabilities().has_atomics());
    assert_eq!(device.pages_given(), 740);
    assert_eq!(fake.lock().pages.len(), 740);
    assert_eq!(device.gid_table_len(), 16);
    assert_eq!(fake.lock().hca.log_uar_page_sz(), 0);
    for posted in &fake.lock().history {
        let pages = posted.is(Opcode::ManagePages);
        assert_eq!(posted.slot == 31, pages, "the last slot is for pages alone");
    }
    device.close().expect("orderly");
    assert_eq!(
        fake.opcodes()[17..],
        [
            Opcode::DestroyEq,
            Opcode::DeallocUar,
            Opcode::TeardownHca,
            Opcode::ManagePages,
            Opcode::ManagePages,
            Opcode::DisableHca,
        ]
    );
    assert!(fake.lock().pages.is_empty());
    fake.assert_clean();
}

#[test]
fn a_virtual_function_asks_for_less() {
    for (device_id, kind) in [
        (Some(0x1018), FunctionKind::Virtual),
        (Some(0x101e), FunctionKind::Virtual),
        (Some(0x1017), FunctionKind::Physical),
        (None, FunctionKind::Physical),
    ] {
        let fake = Fake::with(|inner| {
            inner.device_id = device_id;
            (inner.boot_pages, inner.init_pages) = (0, 0);
        });
        let mut memory = Memory::new();
        let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
        assert_eq!(device.function_kind(), kind);
        let mut expected = ETHERNET.to_vec();
        expected.retain(|&opcode| opcode != Opcode::ManagePages);
        if kind == FunctionKind::Virtual {
            // The host's byte order is the physical function's to set.
            expected.retain(|&opcode| opcode != Opcode::AccessRegister);
        }
        assert_eq!(fake.opcodes(), expected, "{device_id:x?}");
        assert_eq!(device.pages_given(), 0);
        device.close().expect("orderly");
        assert!(!fake.opcodes().contains(&Opcode::ManagePages));
        fake.assert_clean();
    }
}

/// Firmware that asks a virtual function's driver for pages all the same gets them.
#[test]
fn pages_are_not_refused_to_a_virtual_function() {
    let fake = Fake::with(|inner| inner.device_id = Some(0x1018));
    let mut memory = Memory::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    assert_eq!(device.pages_given(), 740);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn an_infiniband_function_needs_no_roce() {
    let fake = Fake::with(|inner| {
        inner.hca.set_port_type(0).set_roce(false).set_atomic(false);
        inner.init_pages = 0;
    });
    let mut memory = Memory::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    assert_eq!(device.commands_executed(), 11);
    assert_eq!(device.gid_table_len(), 0);
    assert!(!device.capabilities().has_atomics());
    drop(device);
    fake.assert_clean();
}

#[test]
fn both_software_interfaces_work() {
    // Linux's driver (`mlx5_core_set_issi`) takes any refusal of QUERY_ISSI, and an answer without any bit, for interface 0.
    let cases: [(u32, Option<Status>, Option<u8>); 7] = [
        (0b11, None, Some(1)),
        (0b10, None, Some(1)),
        (0b01, None, Some(0)),
        (0, Some(Status::BadOperation), Some(0)),
        (0, Some(Status::InternalError), Some(0)),
        (0, None, Some(0)),
        (0b100, None, None),
    ];
    for (supported, refusal, expected) in cases {
        let fake = Fake::with(|inner| inner.issi = supported);
        if let Some(status) = refusal {
            fake.script(move |posted| {
                if posted.is(Opcode::QueryIssi) || posted.is(Opcode::SetIssi) {
                    Action::Fail(status, 1)
                } else {
                    Action::Normal
                }
            });
        }
        let mut memory = Memory::new();
        match (
            Device::open(&fake, Config::DEFAULT, memory.storage()),
            expected,
        ) {
            (Ok(device), Some(issi)) => {
                assert_eq!(device.capabilities().issi, issi);
                assert_eq!(fake.opcodes().contains(&Opcode::QueryIssi), issi == 0);
            }
            (Err(error), None) => {
                assert_eq!(error.step, OpenStep::Issi);
                assert_eq!(error.failure, OpenFailure::Issi { supported });
            }
            (result, _) => panic!("{supported:#b}: {result:?}"),
        }
        fake.assert_clean();
    }
}

/// What step each command of [`ETHERNET`] belongs to.
const STEPS: [OpenStep; 17] = [
    OpenStep::EnableHca,
    OpenStep::Issi,
    OpenStep::BootPages,
    OpenStep::BootPages,
    OpenStep::HostEndianness,
    OpenStep::Capabilities,
    OpenStep::Capabilities,
    OpenStep::Capabilities,
    OpenStep::Capabilities,
    OpenStep::Capabilities,
    OpenStep::Capabilities,
    OpenStep::InitPages,
    OpenStep::InitPages,
    OpenStep::InitHca,
    OpenStep::AllocUar,
    OpenStep::CreateEq,
    OpenStep::EnableRoce,
];

/// Does `action` to the `nth` command.
fn spoil(fake: &Fake, nth: usize, action: Action) {
    let mut count = 0;
    fake.script(move |_| {
        count += 1;
        if count == nth + 1 {
            action.clone()
        } else {
            Action::Normal
        }
    });
}

#[test]
fn any_command_may_be_refused_and_everything_is_undone() {
    for (nth, (&opcode, &step)) in ETHERNET.iter().zip(&STEPS).enumerate() {
        let fake = Fake::new();
        spoil(&fake, nth, Action::Fail(Status::InternalError, nth as u32));
        let error = open_error(&fake);
        assert_eq!(error.step, step);
        let OpenFailure::Command(command) = error.failure else {
            panic!("{opcode}: {error}");
        };
        assert_eq!(command.opcode, opcode);
        let syndrome = nth as u32;
        assert_eq!(
            command.failure,
            CommandFailure::Status {
                status: Status::InternalError,
                syndrome
            }
        );
        assert!(
            fake.lock().pages.is_empty(),
            "{opcode}: the firmware was left with pages"
        );
        let disabled = fake.opcodes().contains(&Opcode::DisableHca);
        assert_eq!(
            disabled,
            nth > 0,
            "{opcode}: the function is disabled if it was enabled"
        );
        fake.assert_clean();
    }
}

#[test]
fn any_command_may_get_lost_and_everything_is_given_back() {
    for (nth, (&opcode, &step)) in ETHERNET.iter().zip(&STEPS).enumerate() {
        let fake = Fake::new();
        spoil(&fake, nth, Action::Drop);
        let error = open_error(&fake);
        assert_eq!(error.step, step);
        let OpenFailure::Command(command) = error.failure else {
            panic!("{opcode}: {error}");
        };
        assert_eq!(command.opcode, opcode);
        assert!(
            matches!(command.failure, CommandFailure::Timeout { .. }),
            "{error}"
        );
        // The firmware may still carry out the command that got lost, so the function is ordered to disable itself.
        fake.assert_clean();
    }
}

#[test]
fn any_command_may_be_slow() {
    for nth in 0..ETHERNET.len() {
        let fake = Fake::new();
        spoil(
            &fake,
            nth,
            Action::After(Duration::from_millis(4), Box::new(Action::Normal)),
        );
        let mut memory = Memory::new();
        let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
        device.close().expect("orderly");
        fake.assert_clean();
    }
}

#[test]
fn the_device_may_vanish_at_any_command() {
    for (nth, &step) in STEPS.iter().enumerate() {
        let fake = Fake::new();
        spoil(&fake, nth, Action::Vanish);
        let before = fake.lock().now;
        let error = open_error(&fake);
        assert_eq!(error.step, step);
        assert_eq!(error.failure, OpenFailure::Device(DeviceError::Gone));
        assert!(
            fake.lock().now - before < quick().command_timeout,
            "waited for a device that is gone"
        );
        fake.assert_no_faults();
    }
}

#[test]
fn a_function_that_does_not_disable_itself_keeps_its_memory() {
    let fake = Fake::with(|inner| inner.obedient = false);
    spoil(&fake, 12, Action::Drop);
    open_error(&fake);
    assert_ne!(
        fake.live(),
        0,
        "memory was given back that the device may still use"
    );
    fake.assert_no_faults();
}

#[test]
fn firmware_that_does_not_start_is_not_waited_for_for_ever() {
    let fake = Fake::new();
    fake.set_register(registers::INITIALIZING, 1 << 31);
    let error = open_error(&fake);
    assert_eq!(error.step, OpenStep::Firmware);
    assert!(
        matches!(error.failure, OpenFailure::StillInitializing { waited } if waited >= quick().initialize_timeout)
    );
    fake.assert_clean();
    let fake = Fake::with(|inner| inner.gone = true);
    let error = open_error(&fake);
    assert_eq!(error.failure, OpenFailure::Device(DeviceError::Gone));
}

#[test]
fn another_command_interface_is_refused() {
    let fake = Fake::new();
    fake.set_register(registers::CMDIF_REV_FW_SUB, 6 << 16 | 4030);
    let error = open_error(&fake);
    assert_eq!(error.failure, OpenFailure::Revision { found: 6 });
    assert_eq!(
        error.to_string(),
        "checking the command interface revision: revision 6 instead of 5"
    );
    assert!(fake.opcodes().is_empty());
}

#[test]
fn completions_must_be_able_to_name_their_queue_pair() {
    let fake = Fake::with(|inner| {
        inner.hca.set_cqe_version(0);
    });
    assert!(matches!(
        open_error(&fake).failure,
        OpenFailure::Unsupported { .. }
    ));
    fake.assert_clean();
}

#[test]
fn a_doorbell_page_outside_the_bar_is_refused() {
    for uar in [0, 0xff_ffff, (support::BAR_LEN / 4096) as u32] {
        let fake = Fake::with(|inner| inner.uar = uar);
        let error = open_error(&fake);
        assert_eq!(error.step, OpenStep::AllocUar);
        let value = u64::from(uar);
        assert_eq!(
            error.failure,
            OpenFailure::Value {
                field: "uar",
                value
            }
        );
        fake.assert_clean();
    }
}

#[test]
fn memory_may_run_out_at_any_allocation() {
    let mut budget = 0;
    loop {
        let fake = Fake::with(|inner| inner.budget = budget);
        let mut memory = Memory::new();
        let result = Device::open(&fake, quick(), memory.storage());
        match result {
            Ok(_) => break,
            Err(error) => match error.failure {
                OpenFailure::Memory(DmaError::OutOfMemory) => {}
                OpenFailure::Command(command)
                    if command.failure == CommandFailure::Memory(DmaError::OutOfMemory) => {}
                other => panic!("budget {budget}: {other:?}"),
            },
        }
        fake.assert_clean();
        budget += 1;
    }
    assert!(budget >= 5, "bring-up allocates more often than that");
}

#[test]
fn a_firmware_that_requires_more_than_the_storage_holds_gets_a_refusal() {
    let fake = Fake::with(|inner| inner.boot_pages = 8 * 512 + 1);
    let error = open_error(&fake);
    assert_eq!(error.step, OpenStep::BootPages);
    let too_few = OpenFailure::PageChunks {
        pages: 4097,
        sufficient: 9,
    };
    assert_eq!(error.failure, too_few);
    let last = fake
        .lock()
        .history
        .iter()
        .rfind(|posted| posted.is(Opcode::ManagePages))
        .cloned();
    assert_eq!(
        last.expect("answered").op_mod,
        0,
        "the firmware gets the refusal of its page request"
    );
    fake.assert_clean();
    // A nonsensical number is not even tried.
    let fake = Fake::with(|inner| inner.boot_pages = u32::MAX);
    let error = open_error(&fake);
    assert!(matches!(
        error.failure,
        OpenFailure::Value {
            field: "num_pages",
            ..
        }
    ));
    fake.assert_clean();
}

/// As many page chunks as the refusal names are enough, one fewer is not; also where memory comes in short runs.
#[test]
fn too_few_page_chunks_are_refused_with_the_number_that_suffices() {
    for largest in [usize::MAX, 256 << 10] {
        for init_pages in [1, 500, 12_868, 70_000] {
            let open = |count: usize| {
                let fake = Fake::with(|inner| {
                    inner.init_pages = init_pages;
                    inner.largest = largest;
                });
                let mut slot = DeviceSlot::new();
                let mut chunks: Vec<_> = (0..count).map(|_| PageChunk::new()).collect();
                let storage = Storage::new(&mut slot, &mut [], &mut [], &mut [], &mut chunks);
                let opened = Device::open(&fake, quick(), storage).map(drop);
                fake.assert_clean();
                opened
            };
            let what = format!("{init_pages} pages, runs of {largest:#x} bytes");
            let mut count = 0;
            // The firmware asks twice, so there are two refusals at most.
            for _ in 0..2 {
                let Err(error) = open(count) else {
                    break;
                };
                let OpenFailure::PageChunks { pages, sufficient } = error.failure else {
                    panic!("{what}: {error}");
                };
                let asked = if error.step == OpenStep::BootPages {
                    700
                } else {
                    700 + init_pages
                };
                assert_eq!(pages, asked, "{what}");
                assert!(sufficient > count, "{what}");
                assert!(error.page_chunks() > Some(sufficient), "{what}");
                assert!(
                    error
                        .to_string()
                        .contains(&format!("{sufficient} page chunks"))
                );
                count = sufficient;
            }
            open(count).unwrap_or_else(|error| panic!("{what}, {count} chunks: {error}"));
            open(count - 1).expect_err("one chunk fewer was enough");
            if largest == usize::MAX {
                assert!(PageChunk::count_for(700 + init_pages) >= count, "{what}");
            }
        }
    }
}

#[test]
fn pages_that_the_firmware_keeps_are_reported() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
    fake.lock().keep_pages = true;
    let error = device.close().unwrap_err();
    assert!(
        matches!(error.failure, CloseFailure::PagesKept { .. }),
        "{error}"
    );
    // It obeyed the order to disable itself, so the pages could be had all the same.
    assert_eq!(error.pages_lost, 0);
    fake.assert_clean();

    let fake = Fake::with(|inner| inner.obedient = false);
    let mut memory = Memory::new();
    let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
    fake.lock().keep_pages = true;
    let error = device.close().unwrap_err();
    assert_eq!(error.pages_lost, 740);
    assert_eq!(error.bytes_quarantined, fake.live() as u64);
}

/// Linux gives each command of teardown the time of any other (60 s unless the firmware says more), and asks for pages as long
/// as some come back within 5 s.
#[test]
fn a_slow_teardown_is_orderly() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let mut config = quick();
    config.command_timeout = Duration::from_millis(50);
    let device = Device::open(&fake, config, memory.storage()).expect("bring-up");
    let slow = config.teardown_timeout * 4;
    fake.script(move |_| Action::After(slow, Box::new(Action::Normal)));
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn any_command_of_teardown_may_fail() {
    for opcode in [
        Opcode::DestroyEq,
        Opcode::DeallocUar,
        Opcode::TeardownHca,
        Opcode::ManagePages,
        Opcode::DisableHca,
    ] {
        for action in [
            Action::Fail(Status::BadSystemState, 7),
            Action::Drop,
            Action::Vanish,
        ] {
            let fake = Fake::new();
            let mut memory = Memory::new();
            let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
            let script = action.clone();
            fake.script(move |posted| {
                if posted.is(opcode) {
                    script.clone()
                } else {
                    Action::Normal
                }
            });
            let error = device.close().unwrap_err();
            match (&action, error.failure) {
                (Action::Vanish, CloseFailure::Device(DeviceError::Gone)) => {
                    assert_eq!(error.bytes_quarantined, fake.live() as u64);
                    fake.assert_no_faults();
                }
                (Action::Fail(..) | Action::Drop, CloseFailure::Command(command)) => {
                    assert_eq!(command.opcode, opcode);
                    fake.assert_clean();
                }
                (action, failure) => panic!("{opcode} {action:?}: {failure:?}"),
            }
        }
    }
}

#[test]
fn storage_can_be_used_again() {
    let mut memory = Memory::new();
    for _ in 0..3 {
        let fake = Fake::new();
        let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
        device.close().expect("orderly");
        fake.assert_clean();
    }
}

#[test]
fn the_driver_version_is_sent_to_firmware_that_has_the_command() {
    let fake = Fake::with(|inner| {
        inner.hca.set_driver_version(true);
    });
    let mut memory = Memory::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    assert_eq!(device.commands_executed(), 18);
    let inner = fake.lock();
    let posted = inner
        .history
        .iter()
        .find(|posted| posted.is(Opcode::SetDriverVersion))
        .expect("sent");
    assert!(posted.input[16..].starts_with(Config::DEFAULT.driver_version.as_bytes()));
    assert_eq!(posted.input[0x4f], 0);
    drop(inner);
    drop(device);
    fake.assert_clean();
}

/// Linux sets `dct` wherever it can be set (`handle_hca_cap`): until then the device has no dynamic connections.
#[test]
fn dynamic_connections_are_turned_on() {
    for (current, max, commands) in [(true, true, 17), (false, true, 18), (false, false, 18)] {
        let fake = Fake::with(|inner| {
            inner.hca.set_dct(current);
            inner.hca_max.set_dct(max);
        });
        let mut memory = Memory::new();
        let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
        assert_eq!(fake.lock().hca.dct(), max);
        assert_eq!(device.capabilities().has_dc(), max);
        assert_eq!(device.commands_executed(), commands);
        drop(device);
        fake.assert_clean();
    }
}

#[test]
fn more_queue_pairs_are_requested_when_the_storage_is_larger() {
    for (current, max, expected, commands) in [
        (1, 18, 2, 18),
        (1, 1, 1, 18),
        (2, 18, 2, 17),
        (17, 18, 17, 17),
    ] {
        let fake = Fake::with(|inner| {
            inner.hca.set_log_max_qp(current);
            inner.hca_max.set_log_max_qp(max);
        });
        let mut memory = Memory::new();
        let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
        assert_eq!(fake.lock().hca.log_max_qp(), expected);
        assert_eq!(device.capabilities().max_qp(), 1 << expected);
        assert_eq!(device.commands_executed(), commands);
        drop(device);
        fake.assert_clean();
    }
}

/// Bring-up moves a device, and so do its callers; what is large is in the storage.
#[test]
fn a_device_is_small() {
    let rest = size_of::<Device<'_, Fake>>() - size_of::<Fake>();
    assert!(rest <= 1536, "{rest}");
}

/// Commands that are under way at once are answered in any order, whatever the queue's length, and one may be refused.
#[test]
fn answers_may_come_in_any_order() {
    let mut under_way_at_once = 0;
    for seed in 0..300_u64 {
        let mut random = Random(seed);
        let mut below = move |limit: u64| random.next() % limit;
        let log_size = 1 + below(5) as u32;
        let eqs = below(6) as u16;
        let refused = (below(2) == 0).then(|| below(24) as usize);
        let init_pages = below(3) as u32 * 40;
        let fake = Fake::with(|inner| {
            inner.init_pages = init_pages;
            inner.hca.set_log_max_eq(4);
        });
        let geometry = log_size << 4 | 6;
        fake.set_register(registers::CMDQ_ADDR_L_SZ, geometry);
        let mut count = 0;
        fake.script(move |_| {
            count += 1;
            let action = match refused {
                Some(nth) if nth + 1 == count => Action::Fail(Status::InternalError, 7),
                _ => Action::Normal,
            };
            Action::After(Duration::from_micros(below(900)), Box::new(action))
        });
        let mut memory = Memory::new();
        let mut config = quick();
        config.completion_event_queues = eqs;
        let opened = Device::open(&fake, config, memory.storage());
        let posted = fake.opcodes().len();
        fake.script(|_| Action::Normal);
        match (opened, refused) {
            (Ok(device), _) => {
                assert_eq!(device.completion_vectors(), eqs.max(1), "{seed}");
                assert_eq!(
                    device
                        .capabilities()
                        .atomic
                        .map(|caps| caps.atomic_req_8B_endianness_mode()),
                    Some(1)
                );
                device.close().expect("orderly");
            }
            (Err(error), Some(nth)) => {
                assert!(nth < posted, "{seed}: {error}");
                let OpenFailure::Command(command) = error.failure else {
                    panic!("{seed}: {error}");
                };
                let syndrome = 7;
                let status = Status::InternalError;
                assert_eq!(command.failure, CommandFailure::Status { status, syndrome });
            }
            (Err(error), None) => panic!("{seed}: {error}"),
        }
        let most = fake
            .lock()
            .history
            .iter()
            .map(|posted| posted.slot)
            .filter(|slot| u32::from(*slot) + 1 < 1 << log_size)
            .max();
        under_way_at_once = under_way_at_once.max(most.unwrap_or(0));
        fake.assert_clean();
    }
    assert!(under_way_at_once >= 4, "{under_way_at_once}");
}
