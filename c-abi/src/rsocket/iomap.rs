//! `riomap`, `riounmap`, `riowrite`: writing into buffers that the other end has mapped.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use crate::process::failure::{Errno, Result, as_status, guarded, lock};
use crate::rsocket::connection::Connection;
use crate::rsocket::data::{bytes, connection};
use crate::rsocket::socket::{Phase, State};
use crate::rsocket::table::socket;
use crate::rsocket::task::as_length;

/// Maps a buffer, which the other end may write to if `prot` says so: `riomap`. Its offset, which is the given one or, for -1,
/// the buffer's address. The other end knows of it when it receives what is sent next.
///
/// # Safety
/// The memory stays until it is unmapped or the rsocket is closed, and may change until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    _: c_int,
    offset: off_t,
) -> off_t {
    let mapped = guarded(|| {
        let socket = self::socket(socket)?;
        // The other end knows lengths of 32 bits.
        if prot & !libc::PROT_WRITE != 0 || u32::try_from(len).is_err() {
            return Err(Errno::EINVAL);
        }
        let remote = prot & libc::PROT_WRITE != 0;
        let mut state = lock(&socket.state);
        let connection = connected(&mut state)?;
        let offset = (offset != -1).then_some(offset as u64);
        // SAFETY: the caller promises that the memory stays until it is unmapped or the rsocket is closed, and may change
        // until then.
        let offset = unsafe { connection.map(buf, len, remote, offset) }?;
        Ok(offset as off_t)
    });
    mapped.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// The connection, without which nothing can be mapped.
fn connected(state: &mut State) -> Result<&mut Connection> {
    match &mut state.phase {
        Phase::Open(connection) => Ok(connection),
        _ => Err(Errno::EINVAL),
    }
}

/// Unmaps a buffer: `riounmap`. What the other end writes there afterwards ends the connection.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        let mut state = lock(&socket.state);
        let connection = connected(&mut state)?;
        connection.unmap(buf as usize, len)
    })
}

/// Writes into the buffers of the other end from an offset on: `riowrite`. The other end is not told; what is sent afterwards
/// arrives afterwards. Returns how many bytes, fewer if no buffer has the next offset: none before there is a connection.
///
/// # Safety
/// `count` bytes at `buf` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `count` bytes at `buf` can be read.
        let bytes = unsafe { bytes(buf, count) }?;
        let mut written = 0;
        let finished = socket
            .wait(None, socket.is_nonblocking(flags), |state| {
                if let Phase::New | Phase::Bound | Phase::Listening(_) = state.phase {
                    return Some(Ok(()));
                }
                let is_ordinary = state.options.is_ordinary;
                let connection = match connection(state)? {
                    Ok(connection) => connection,
                    Err(errno) => return Some(Err(errno)),
                };
                if !connection.is_writable() {
                    return Some(Err(connection.send_error(is_ordinary)));
                }
                let from = (offset as u64).wrapping_add(written as u64);
                match connection.write_at(&bytes[written..], from) {
                    Ok(Some(posted)) => written += posted,
                    // No buffer has this offset.
                    Ok(None) => return Some(Ok(())),
                    Err(errno) => {
                        connection.break_off(errno);
                        return Some(Err(errno));
                    }
                }
                (written == bytes.len()).then_some(Ok(()))
            })
            .await;
        match finished {
            Err(errno) if written == 0 => Err(errno),
            _ => Ok(written),
        }
    });
    // It has no sign in the headers.
    written as size_t
}
