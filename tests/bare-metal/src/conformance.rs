//! Holds the platform on the `kernel` beside it, which is `machine.rs`, against its requirements. The command line has the word
//! `interrupts`, or nothing.
//!
//! It is a separate program, so that `rping` does not contain it.
#![no_std]
#![no_main]
// UNSAFETY: makes memory of page frames.
#![expect(unsafe_code)]

mod machine;

use core::fmt;

use bareverbs::verbs::conformance::{self, ConformanceError, MEMORY_LEN, Options};
use bareverbs::verbs::{Cqs, PageChunks, Qps, Resources, Srqs};
use kernel::{Boot, FRAME, FRAMES, MachineError, interrupts};
use spin::Mutex;

use machine::Machine;

kernel::entry!(main);

/// The driver's storage, with 64 MiB for the firmware. Static, as in `node.rs`.
static RESOURCES: Mutex<Resources<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<32>>> =
    Mutex::new(Resources::new());

/// Why the test did not pass.
enum Failure {
    /// The command line has something else.
    Option(&'static str),
    /// The machine is not as it should be.
    Machine(MachineError),
    /// The platform is not.
    Platform(ConformanceError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(words) => write!(f, "the command line has {words:?}"),
            Self::Machine(error) => error.fmt(f),
            Self::Platform(error) => error.fmt(f),
        }
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        Self::Machine(error)
    }
}

fn main(boot: &Boot) -> Result<(), Failure> {
    let with_interrupts = match boot.command_line.trim() {
        "" => false,
        "interrupts" => true,
        other => return Err(Failure::Option(other)),
    };
    if with_interrupts {
        interrupts::enable()?;
    }
    let machine = Machine::new(boot.ecam.find_card()?, &boot.ecam, with_interrupts)?;
    let memory = memory().ok_or(MachineError::OutOfMemory)?;
    let mut resources = RESOURCES.lock();
    let options = Options::DEFAULT;
    let report = conformance::run(&machine, memory, resources.storage(), options)
        .map_err(Failure::Platform)?;
    log::info!("conformance: {report}");
    Ok(())
}

/// Page frames, for good.
fn memory() -> Option<&'static mut [u8; MEMORY_LEN]> {
    let frames = MEMORY_LEN.div_ceil(FRAME as usize);
    let memory = FRAMES.lock().take(frames, FRAME)? as *mut [u8; MEMORY_LEN];
    // SAFETY: the frames were not in use, are never given back, and are mapped; bytes may have any value.
    unsafe { memory.as_mut() }
}
