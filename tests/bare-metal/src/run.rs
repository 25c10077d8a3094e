//! From the boot code to the program's main function, and to the end.

// UNSAFETY: calls the program's main function, whose name the linker resolves.
#![expect(unsafe_code)]

use core::fmt::Display;
use core::panic::PanicInfo;

use spin::Once;

use crate::arch::exit::exit;
use crate::arch::{self, clock, interrupts, paging};
use crate::assign::assign;
use crate::error::MachineError;
use crate::frames::FRAMES;
use crate::pci::Ecam;
use crate::{console, image};

/// The machine, as a program finds it.
#[derive(Debug)]
pub struct Boot {
    /// The command line's text.
    pub command_line: &'static str,
    /// The PCI functions.
    pub ecam: Ecam,
}

/// Result of a run, as QEMU's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// Everything was as it should be: 33.
    Good = 0x10,
    /// Something failed, and was said: 35.
    Failed = 0x11,
    /// The program itself is wrong: 37.
    Broken = 0x12,
}

/// Says how the program's main function ended, for [`entry!`](crate::entry).
pub fn ended<E: Display>(done: Result<(), E>) -> Status {
    match &done {
        Ok(()) => say_how(None),
        Err(failure) => say_how(Some(failure)),
    }
}

fn say_how(failure: Option<&dyn Display>) -> Status {
    let stack = image::stack();
    log::info!(
        "stack high-water mark: {} of {} bytes; frames: at most {}",
        image::stack_used(),
        stack.end - stack.start,
        FRAMES.lock().most_in_use()
    );
    match failure {
        None => {
            log::info!("done");
            Status::Good
        }
        Some(failure) => {
            log::error!("failed: {failure}");
            Status::Failed
        }
    }
}

/// Everything, from the boot code on: the address of the boot loader's information, and the cycle counter at boot.
pub(crate) fn run(info: u64, cycles: u64) -> ! {
    unsafe extern "Rust" {
        fn kernel_main(boot: &Boot) -> Status;
    }
    console::init();
    interrupts::init();
    match bring_up(info, cycles) {
        // SAFETY: `entry!` gives it this type.
        Ok(boot) => exit(unsafe { kernel_main(&boot) }),
        Err(error) => exit(ended(Err(error))),
    }
}

fn bring_up(info: u64, cycles: u64) -> Result<Boot, MachineError> {
    static COMMAND_LINE: Once<CommandLine> = Once::new();
    // All that was left in memory is read before any of the memory is used.
    let machine = arch::describe(info)?;
    let command_line = COMMAND_LINE.call_once(|| CommandLine::copy(machine.command_line));
    FRAMES.lock().manage(&machine.memory);
    paging::init()?;
    let rate = clock::init(machine.clock, cycles)?;
    log::info!(
        "{} MiB of memory, cycle counter of {} MHz",
        (machine.memory.end - machine.memory.start) >> 20,
        rate / 1_000_000
    );
    let ecam = Ecam::map(machine.ecam, machine.buses.clone())?;
    if let Some(windows) = &machine.windows {
        assign(&ecam, &machine.buses, windows)?;
    }
    Ok(Boot {
        command_line: command_line.text(),
        ecam,
    })
}

/// A command line that stays when the boot loader's memory is used for something else. A longer one is cut.
struct CommandLine {
    bytes: [u8; 1024],
    len: usize,
}

impl CommandLine {
    fn copy(text: &str) -> Self {
        let mut bytes = [0; 1024];
        let len = text.floor_char_boundary(bytes.len());
        let (copied, _) = bytes.split_at_mut(len);
        copied.copy_from_slice(&text.as_bytes()[..len]);
        Self { bytes, len }
    }

    fn text(&self) -> &str {
        // It is text, as far as it goes.
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    log::error!("{info}");
    exit(Status::Broken)
}
