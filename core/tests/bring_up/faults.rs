//! Commands of bring-up that are refused, lost or slow, answers in any order, and devices that vanish.

use super::*;

/// The step that each command of [`ETHERNET`] belongs to.
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
