//! The first serial port.

// UNSAFETY: the port's registers are I/O ports.
#![expect(unsafe_code)]

use super::port;

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 0x20;

/// Sets the port up: 115200 baud, 8 bits, FIFOs on, no interrupts.
pub(crate) fn init() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        // SAFETY: a serial port's registers, which only this module uses.
        unsafe { port::write_u8(COM1 + register, value) };
    }
}

/// Sends a byte when the port is ready.
pub(crate) fn send(byte: u8) {
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
