//! The process that waits for the end of another one, which has devices, and sends what that one would have sent at its end: the
//! device is opened again, and the other ends of its connections learn that they are over.

// UNSAFETY: takes over a descriptor.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::FromRawFd;

use bareverbs_node::cm::engine::LastMessage;
use bareverbs_node::last_messages;

use crate::process::failure::as_status;
use crate::process::hca::CONNECTIONS;
use crate::process::{device, owner};

/// Waits until the process is gone whose memory of messages is standard input, and sends them. `bareverbs-run` calls it.
#[unsafe(no_mangle)]
pub extern "C" fn bareverbs_hang_up() -> c_int {
    as_status(|| {
        // SAFETY: nothing else in this process reads standard input.
        let mut file = unsafe { File::from_raw_fd(0) };
        let messages = last_messages::wait(&mut file)?;
        if messages.iter().all(LastMessage::is_none) {
            return Ok(());
        }
        owner::hang_up();
        let mut result = Ok(());
        for (device, messages) in device::devices()?.iter().zip(messages.chunks(CONNECTIONS)) {
            if !messages.iter().all(LastMessage::is_none) {
                // The other devices hang up as well.
                result = result.and(device.hang_up(messages));
            }
        }
        result
    })
}
