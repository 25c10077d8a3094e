//! Opening a device whose firmware takes its time: how often one command waits for another, in virtual time.

use std::time::Duration;

use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::Builder;

/// Latency of a command.
const COMMAND: Duration = Duration::from_micros(100);

type Memory = Resources<Qps<8>, Cqs<8>, Srqs<1>, PageChunks<1024>>;

/// Opens a device.
pub(crate) struct Opened {
    /// Commands that it took.
    pub(crate) commands: u64,
    /// Command latencies on the critical path.
    pub(crate) latencies: f64,
}

pub(crate) fn open(completion_event_queues: u16) -> Opened {
    let card = connectx_model::Config {
        command_time: COMMAND,
        boot_time: Duration::ZERO,
        ..connectx_model::Config::new(1)
    };
    let world = Builder::new().function(card).stepped();
    let mut memory = Box::new(Memory::new());
    let mut config = Config::DEFAULT;
    config.completion_event_queues = completion_event_queues;
    let platform = world.platform(0);
    let start = world.now();
    let device = Device::open(platform, config, memory.storage()).expect("bring-up");
    Opened {
        commands: device.commands_executed(),
        latencies: (world.now() - start).as_secs_f64() / COMMAND.as_secs_f64(),
    }
}
