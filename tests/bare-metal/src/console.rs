//! `log` on the serial port.

use core::fmt::{self, Write};

use log::{LevelFilter, Log, Metadata, Record};

use crate::arch::{clock, serial};

/// Writes lines on the console.
struct Console;

static CONSOLE: Console = Console;

/// Sets the port up, and makes it what `log` writes to.
pub(crate) fn init() {
    serial::init();
    // Only a second logger is refused.
    let _ = log::set_logger(&CONSOLE);
    log::set_max_level(LevelFilter::Info);
}

struct Port;

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(serial::send);
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
