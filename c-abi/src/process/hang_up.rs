//! The process that waits for the end of another one, which has devices, and sends what that one would have sent at its end: the
//! device is opened again, and the other ends of its connections learn that they are over.

// UNSAFETY: takes over a descriptor, and reads values from a file.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use bareverbs_node::cm::engine::LastMessage;

use crate::process::failure::as_status;
use crate::process::hca::CONNECTIONS;
use crate::process::{device, last_messages, owner};

/// Waits until the process is gone whose memory of messages is standard input, and sends them. `bareverbs-run` calls it.
#[unsafe(no_mangle)]
pub extern "C" fn bareverbs_hang_up() -> c_int {
    as_status(|| {
        // SAFETY: nothing else in this process reads standard input.
        let mut file = unsafe { File::from_raw_fd(0) };
        last_messages::record_lock(&file, libc::F_SETLKW, libc::F_RDLCK)?;
        let messages = read(&mut file)?;
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

/// Reads all messages of a file.
fn read(file: &mut impl Read) -> io::Result<Vec<LastMessage>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let entries = bytes.chunks_exact(size_of::<LastMessage>());
    // SAFETY: so many bytes, all values of which are messages.
    Ok(entries
        .map(|entry| unsafe { entry.as_ptr().cast::<LastMessage>().read_unaligned() })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_whole_from_any_bytes() {
        const LEN: usize = size_of::<LastMessage>();
        let zeros = [0; 2 * LEN];
        let messages = read(&mut &zeros[..]).expect("bytes");
        assert_eq!(messages.len(), 2);
        assert!(messages.iter().all(LastMessage::is_none));
        // Half a message is none.
        let ones = [0xff; 2 * LEN - 1];
        let messages = read(&mut &ones[..]).expect("bytes");
        assert_eq!(messages.len(), 1);
        assert_eq!(
            messages[0].write(&mut [0; bareverbs_node::cm::mad::MAD_LEN]),
            None
        );
    }
}
