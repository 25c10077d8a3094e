//! Bring-up and teardown, step by step, against a firmware that follows a script.

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod memory;
mod teardown;

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
