//! The device's health, by its registers.

use core::time::Duration;

use bareverbs_firmware_cmds::health::HealthBuffer;
use bareverbs_firmware_cmds::init_segment::{
    CMDQ_ADDR_H, CMDQ_ADDR_L_SZ, CommandQueueRegister, HEALTH, HEALTH_COUNTER, HEALTH_COUNTER_MASK,
    NicInterface, VANISHED,
};

use crate::firmware::context::Context;
use crate::firmware::recorder::RecordKind;
use crate::platform::Platform;
use crate::types::error::DeviceError;

/// The health buffer's copy of the firmware version, never all ones while the device is there.
const FW_VERSION: usize = HEALTH + 0x30;
/// Bit 31: the firmware asks for a reset.
const RESET_REQUEST: usize = HEALTH + 0x38;
/// Bits 23:16 syndrome, 15:0 extended syndrome.
const SYNDROME: usize = HEALTH + 0x3c;

/// The longest interval between two checks that the device is still there: one register read is little, and a caller that polls
/// needs to know soon.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The time after which a counter that stands still is logged. Linux's driver looks three times, 2 s apart.
const QUIET: Duration = Duration::from_secs(6);

/// Returns `true` if the device has left the bus: one register read.
pub(crate) fn is_gone<P: Platform>(platform: &P) -> bool {
    platform.read_be32(FW_VERSION) == VANISHED
}

/// Reads all of the health buffer, which may be from the function's last use.
#[cold]
pub fn read_health<P: Platform>(platform: &P) -> HealthBuffer {
    let mut at = HEALTH;
    HealthBuffer::from_registers([(); 16].map(|()| {
        at += 4;
        platform.read_be32(at - 4)
    }))
}

/// Where the device has its commands from, with the lower half's register already read.
fn queue_address<P: Platform>(platform: &P, low: u32) -> u64 {
    let high = platform.read_be32(CMDQ_ADDR_H);
    u64::from(high) << 32 | u64::from(CommandQueueRegister(low).address_low())
}

/// The device's health as it was seen so far.
#[derive(Debug)]
pub(crate) struct Health {
    next_look: Duration,
    next: Duration,
    /// The command queue's address.
    queue: u64,
    /// `true` if the registers gave it back already. They may give back what was there before for a while, or nothing ever.
    latched: bool,
    counter: u32,
    /// When the counter was last seen to move.
    moved: Duration,
    /// True once it was logged that the counter stands still.
    quiet: bool,
    /// The syndrome's register when the problem that the firmware reported without asking for a reset was logged.
    reported: u32,
}

impl Health {
    /// To be made once the address `queue` of the commands was written to the device.
    pub(crate) fn new<P: Platform>(platform: &P, queue: u64) -> Self {
        let now = platform.now();
        Self {
            next_look: now,
            next: now,
            queue,
            latched: false,
            counter: platform.read_be32(HEALTH_COUNTER) & HEALTH_COUNTER_MASK,
            moved: now,
            reported: 0,
            quiet: false,
        }
    }

    /// When the registers have to be looked at again.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Looks at the registers if it is time to.
    pub(crate) fn check<P: Platform>(&mut self, cx: &Context<'_, P>) -> Result<(), DeviceError> {
        let Context {
            platform, config, ..
        } = *cx;
        let now = platform.now();
        // Not later than `next` says: a thread that sleeps until then would look again at once, and find nothing.
        if now < self.next_look.min(self.next) {
            return Ok(());
        }
        self.next_look = now.saturating_add(LOOK_INTERVAL.min(config.health_interval));
        if is_gone(platform) {
            return Err(DeviceError::Gone);
        }
        if now < self.next {
            return Ok(());
        }
        self.next = now.saturating_add(config.health_interval);
        self.examine(cx, now).map_err(|error| {
            // It may have gone between two registers: all ones say nothing else, whichever register they are read from.
            if is_gone(platform) {
                DeviceError::Gone
            } else {
                error
            }
        })
    }

    fn examine<P: Platform>(
        &mut self,
        cx: &Context<'_, P>,
        now: Duration,
    ) -> Result<(), DeviceError> {
        let Context {
            platform, config, ..
        } = *cx;
        let register = platform.read_be32(CMDQ_ADDR_L_SZ);
        if register == VANISHED {
            return Err(DeviceError::Gone);
        }
        if queue_address(platform, register) == self.queue {
            self.latched = true;
        } else if self.latched {
            return Err(DeviceError::WasReset);
        }
        let interface = CommandQueueRegister(register).nic_interface();
        if matches!(
            interface,
            NicInterface::Disabled | NicInterface::SoftwareReset
        ) {
            let nic_state = interface.number();
            return Err(DeviceError::Disabled { nic_state });
        }
        let word = platform.read_be32(SYNDROME);
        let (syndrome, extended) = ((word >> 16) as u8, word as u16);
        if syndrome != 0 {
            if platform.read_be32(RESET_REQUEST) >> 31 != 0 {
                return Err(DeviceError::Fatal { syndrome, extended });
            }
            if word != self.reported {
                let health = read_health(platform);
                log::error!("the firmware reports {health}");
                cx.record(RecordKind::Health(health));
            }
        }
        self.reported = word;
        let counter = platform.read_be32(HEALTH_COUNTER) & HEALTH_COUNTER_MASK;
        if counter != self.counter {
            self.counter = counter;
            self.moved = now;
            self.quiet = false;
        }
        let stalled = now.saturating_sub(self.moved);
        if stalled >= QUIET && !self.quiet {
            self.quiet = true;
            log::error!("the firmware's health counter has stood still for {stalled:?}");
        }
        if stalled >= config.health_stall {
            let stalled = stalled.into();
            return Err(DeviceError::Stuck { stalled });
        }
        Ok(())
    }
}
