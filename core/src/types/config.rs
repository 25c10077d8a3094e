//! The caller's choices about a device: limits, waiting, memory.

use core::time::Duration;

/// These settings say how a device is brought up and driven. The default suits everything but special cases; a program sets
/// in a `Config` what is to differ:
///
/// ```
/// let mut config = bareverbs_core::Config::default();
/// config.interrupts = true;
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Config {
    /// The time that the firmware may take to leave the "initializing" state after a reset.
    pub initialize_timeout: Duration,
    /// The time that a firmware command may take.
    pub command_timeout: Duration,
    /// The time for which teardown asks for pages while the firmware returns none, and waits for a disabled function to become
    /// quiet. Each command of teardown may take [`command_timeout`](Self::command_timeout), as any other.
    pub teardown_timeout: Duration,
    /// The interval at which [`Device::poll`](crate::Device::poll) looks at the health registers. A caller that polls finds out
    /// within 10 ms anyhow that the device has left the bus; one that sleeps for interrupts wakes this often to look, and for
    /// nothing else, so that this is what an idle device costs.
    pub health_interval: Duration,
    /// The time that the health counter may stand still before the device counts as dead. There is no limit by default: like
    /// Linux's driver this one only logs it, as messages flow on without the firmware, and commands have their own time.
    pub health_stall: Duration,
    /// Entries of the event queue at least; rounded up to a power of two, and raised so that every CQ of the storage
    /// can have an event in it.
    pub event_queue_entries: u32,
    /// Completion event queues, each on its own interrupt vector, beside the one that everything else uses: not more than
    /// there are vectors, if interrupts are used. With 0 the completions share that one.
    pub completion_event_queues: u16,
    /// Sleep for interrupts (as far as the platform has vectors). Otherwise event queues are polled.
    pub interrupts: bool,
    /// Negotiate signatures on command mailboxes in both directions, if the firmware can, and verify them. Costs one
    /// command more at bring-up.
    pub command_signatures: bool,
    /// Agree to a reset of the firmware that another host of the card or a tool asks for, as for an update (`mlxfwreset`,
    /// `devlink dev reload`): `enable_remote_dev_reset` of Linux's driver. By default it is refused, as Linux's driver refuses
    /// it where it could not carry out its own part: it resets the PCI link of its host and loads again. A program
    /// that sets this does both, after [`AsyncEvent::FirmwareReset`](crate::AsyncEvent::FirmwareReset).
    pub allow_firmware_reset: bool,
    /// Sent to the firmware if it has the command (at most 63 bytes of ASCII); shown by vendor tools.
    pub driver_version: &'static str,
}

impl Config {
    /// The defaults: the stock kernel driver's timeouts, one event queue, polling.
    pub const DEFAULT: Self = Self {
        initialize_timeout: Duration::from_secs(120),
        command_timeout: Duration::from_secs(60),
        teardown_timeout: Duration::from_secs(5),
        health_interval: Duration::from_secs(1),
        health_stall: Duration::MAX,
        event_queue_entries: 512,
        completion_event_queues: 0,
        interrupts: false,
        command_signatures: false,
        allow_firmware_reset: false,
        driver_version: concat!("bareverbs,core,", env!("CARGO_PKG_VERSION")),
    };
}

impl Default for Config {
    fn default() -> Self {
        Self::DEFAULT
    }
}
