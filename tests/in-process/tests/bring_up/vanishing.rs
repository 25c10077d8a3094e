//! A function that leaves the bus.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::domain::DeallocPdIn;
use bareverbs_core::{
    AsyncEvent, CloseFailure, Config, Device, DeviceError, OpenFailure, Platform,
};
use bareverbs_in_process::{Call, Tap, Tapped, World};
use connectx_model::Config as Card;

use crate::support::{Memory, alloc_pd, assert_nothing_held, world};

const CMD_DBELL: usize = 0x18;

/// The function leaves the bus when doorbell number `left` is to be rung.
struct Vanishing<'w> {
    world: &'w World,
    left: AtomicU32,
}

impl Tap for Vanishing<'_> {
    fn before(&self, call: Call) {
        if call == Call::Write(CMD_DBELL) && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.world.with_model(0, connectx_model::Model::vanish);
        }
    }
}

#[test]
fn the_device_may_vanish_in_any_phase() {
    let gone = CommandFailure::Device(DeviceError::Gone);
    let mut phases = [0; 4];
    for doorbells in 0.. {
        let world = world(Card::new(1));
        let vanishing = Vanishing {
            world: &world,
            left: AtomicU32::new(doorbells),
        };
        let platform = Tapped::new(world.platform(0), vanishing);
        let started = world.now();
        let mut memory = Memory::new();
        let device = match Device::open(&platform, Config::DEFAULT, memory.storage()) {
            Ok(device) => device,
            Err(error) => {
                assert_eq!(
                    error.failure,
                    OpenFailure::Device(DeviceError::Gone),
                    "doorbell {doorbells}"
                );
                phases[0] += 1;
                assert!(
                    world.now() - started < Duration::from_secs(1),
                    "waited for a device that is gone"
                );
                continue;
            }
        };
        let used = device
            .query_port()
            .map(drop)
            .and_then(|()| alloc_pd(&device))
            .map(|pd| dealloc_pd_quietly(&device, pd));
        match used {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => {
                assert_eq!(error.failure, gone, "doorbell {doorbells}");
                phases[1] += 1;
                assert_eq!(device.poll(), Err(DeviceError::Gone));
                assert_eq!(
                    device.next_async_event(),
                    Some(AsyncEvent::DeviceFatal(DeviceError::Gone))
                );
            }
        }
        let held = world.accounting(0).allocated as u64;
        let before = world.now();
        match device.close() {
            Ok(()) => {
                phases[3] += 1;
                assert_nothing_held(&world, "never vanished");
                break;
            }
            Err(error) => {
                phases[2] += 1;
                assert_eq!(
                    error.failure,
                    CloseFailure::Device(DeviceError::Gone),
                    "doorbell {doorbells}"
                );
                assert!(error.bytes_quarantined <= held);
                assert_eq!(
                    error.bytes_quarantined,
                    world.accounting(0).allocated as u64,
                    "doorbell {doorbells}"
                );
                assert!(
                    world.now() - before < Duration::from_secs(1),
                    "waited for a device that is gone"
                );
            }
        }
        assert_eq!(world.take_faults(0), [], "doorbell {doorbells}");
    }
    assert!(phases.iter().all(|&count| count > 0), "{phases:?}");
}

fn dealloc_pd_quietly<P: Platform>(
    device: &Device<'_, P>,
    pd: u32,
) -> Result<(), bareverbs_core::CommandError> {
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    device.execute(&dealloc).map(drop)
}
