//! The first serial port, and `log` on it.

// UNSAFETY: the port's registers are I/O ports.
#![expect(unsafe_code)]

use core::fmt::{self, Write};

use log::{LevelFilter, Log, Metadata, Record};

use crate::{clock, port};

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 0x20;

/// Writes lines on the console.
struct Console;

static CONSOLE: Console = Console;

/// Sets the port up, and makes it what `log` writes to.
pub(crate) fn init() {
    // 115200 baud, 8 bits, FIFOs on, no interrupts.
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        // SAFETY: a serial port's registers, which nobody else uses.
        unsafe { port::write_u8(COM1 + register, value) };
    }
    // Only a second logger is refused.
    let _ = log::set_logger(&CONSOLE);
    log::set_max_level(LevelFilter::Info);
}

struct Port;

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // A port that is never ready is none.
            for _ in 0..1_000_000 {
                // SAFETY: reading the status changes nothing.
                if unsafe { port::read_u8(LINE_STATUS) } & TRANSMITTER_EMPTY != 0 {
                    break;
                }
            }
            // SAFETY: the port's data register.
            unsafe { port::write_u8(COM1, byte) };
        }
        Ok(())
    }
}

impl Log for Console {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let now = clock::since_boot();
        // The port takes everything.
        let _ = writeln!(
            Port,
            "[{:3}.{:06}] {:5} {}: {}\r",
            now.as_secs(),
            now.subsec_micros(),
            record.level(),
            record.target(),
            record.args()
        );
    }

    fn flush(&self) {}
}
