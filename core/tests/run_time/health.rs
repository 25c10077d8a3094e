//! Health registers: fatal errors, a counter that stands still, a device that is gone.

use super::*;

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
