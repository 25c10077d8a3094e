//! A unikernel that runs bareverbs with nothing below it: x86-64, booted by QEMU's `-kernel` (Xen's PVH protocol), one
//! processor, no allocator. It brings a ConnectX up, answers for an IP address, and is either end of `rping`; `options.rs`
//! lists the words of its command line.
//!
//! It ends by itself, with QEMU's exit status 33 if all was well, and what was wrong on the serial console otherwise.
#![no_std]
#![no_main]

mod acpi;
mod boot;
mod clock;
mod console;
mod error;
mod exit;
mod frames;
mod image;
mod interrupts;
mod machine;
mod node;
mod options;
mod paging;
mod pci;
mod physical;
mod ping;
mod port;
mod start_info;

use acpi::Tables;
use error::{Failure, MachineError};
use exit::{Status, exit};
use frames::FRAMES;
use machine::Machine;
use options::Options;
use pci::Ecam;
use start_info::StartInfo;

/// Everything, from the boot code on.
fn main(info: u64, boot: u64) -> ! {
    console::init();
    interrupts::init();
    let done = run(info, boot);
    let stack = image::stack();
    log::info!(
        "stack high-water mark: {} of {} bytes; frames: at most {}",
        image::stack_used(),
        stack.end - stack.start,
        FRAMES.lock().most_in_use()
    );
    match done {
        Ok(()) => {
            log::info!("done");
            exit(Status::Good)
        }
        Err(failure) => {
            log::error!("failed: {failure}");
            exit(Status::Failed)
        }
    }
}

fn run(info: u64, boot: u64) -> Result<(), Failure> {
    // All that was left in memory is read before any of the memory is used.
    let info = StartInfo::read(info)?;
    let tables = Tables::find(info.rsdp)?;
    let options = Options::parse(info.command_line())?;
    log::set_max_level(options.log);
    let image = image::whole();
    let beside = info.ram().map(|run| run.start.max(image.end)..run.end);
    let memory = beside.max_by_key(|run| run.end.saturating_sub(run.start));
    let memory = memory.filter(|run| run.start < run.end);
    let memory = memory.ok_or(MachineError::NoMemory)?;
    FRAMES.lock().manage(&memory);
    paging::init()?;
    let rate = clock::calibrate(boot, tables.timer)?;
    log::info!(
        "{} MiB of memory, cycle counter of {} MHz",
        (memory.end - memory.start) >> 20,
        rate / 1_000_000
    );
    let ecam = Ecam::map(tables.ecam, tables.buses)?;
    if options.interrupts {
        interrupts::init_apic()?;
    }
    let mut attempt = 1;
    loop {
        let done = drive(&ecam, &options);
        match done {
            Err(failure) if attempt < options.attempts => {
                log::error!("attempt {attempt} failed: {failure}");
                attempt += 1;
            }
            done => return done,
        }
    }
}

/// Finds the card, resets it, and runs `rping` on it.
fn drive(ecam: &Ecam, options: &Options) -> Result<(), Failure> {
    let card = ecam.find_card()?;
    let machine = Machine::new(card, ecam, options.interrupts)?;
    node::run(machine, options, |cm| match options.server {
        None => ping::serve(cm, options),
        Some(server) => ping::ping(cm, options, server),
    })
}
