//! Closing a device, slowly or with commands that fail.

use super::*;

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
