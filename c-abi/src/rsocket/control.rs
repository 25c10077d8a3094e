//! `rshutdown`, `rclose`, names, and `rfcntl`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bareverbs_node::cm::rdma::SockAddr;
use libc::{sockaddr, socklen_t};

use crate::process::failure::{Errno, Result, as_number, as_status, lock};
use crate::rsocket::epoll;
use crate::rsocket::ids::destroy;
use crate::rsocket::socket::{Phase, Socket, State, for_domain, unspecified};
use crate::rsocket::stream::{give_address, reset};
use crate::rsocket::table::{self, socket};
use crate::rsocket::task::block_on;
use crate::rsocket::wire::Message;

/// The time that the other end may take to confirm the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends one direction of a stream, or both: `rshutdown`. What was sent has arrived when this returns.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        let message = {
            let mut state = lock(&socket.state);
            let is_ordinary = state.options.is_ordinary;
            let connection = match &mut state.phase {
                Phase::Open(connection) if is_ordinary && connection.is_over() => {
                    return Err(Errno(libc::ENOTCONN));
                }
                Phase::Open(connection) => connection,
                // It is about what is sent, of which there is nothing.
                Phase::Listening(_) if is_ordinary && how == libc::SHUT_WR => return Ok(()),
                Phase::Listening(_) => return stop_listening(&socket, &mut state),
                _ => return Err(Errno(libc::ENOTCONN)),
            };
            let said = connection.shut_write;
            match how {
                libc::SHUT_RD => connection.shut_read = true,
                libc::SHUT_WR => connection.shut_write = true,
                libc::SHUT_RDWR => (connection.shut_read, connection.shut_write) = (true, true),
                _ => return Err(Errno::EINVAL),
            }
            match (connection.shut_read, connection.shut_write) {
                (true, true) => Some(Message::Disconnect),
                // The other end closes for its part when it has ended its direction, too.
                (false, true) if connection.peer_shut => Some(Message::Disconnect),
                (false, true) if !said => Some(Message::Shutdown),
                _ => None,
            }
        };
        let ended = match message {
            Some(message) => {
                block_on(socket.say_end(message, Instant::now().checked_add(PATIENCE)))
            }
            None => Ok(()),
        };
        socket.waiters.wake();
        ended
    })
}

/// Connections are refused from now on, and calls that wait for one end. An ordinary socket keeps its port, as one of TCP does.
fn stop_listening(socket: &Socket, state: &mut State) -> Result<()> {
    if state.options.is_ordinary {
        reset(socket, state);
    } else {
        destroy(&std::mem::take(&mut state.ids));
        state.phase = Phase::Failed;
    }
    socket.waiters.wake();
    Ok(())
}

/// Closes an rsocket, or what `repoll_create` made: `rclose`. It waits until what was sent has arrived, as long as `SO_LINGER` says.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    as_status(|| {
        if let Some(closed) = epoll::close(socket) {
            return closed;
        }
        let socket = table::remove(socket)?;
        if socket.is_inherited() {
            // Its parent goes on using it.
            std::mem::forget(socket);
            return Ok(());
        }
        socket.finish(None)
    })
}

/// The address of the other end: `rgetpeername`.
///
/// # Safety
/// `addrlen` says how many bytes can be written at `addr`, and can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        let state = lock(&socket.state);
        let peer = match &state.phase {
            Phase::Open(connection) if state.options.is_ordinary && connection.is_over() => None,
            Phase::Open(_) | Phase::Datagrams(_) => state.peer,
            _ => None,
        };
        let peer = peer.ok_or(Errno(libc::ENOTCONN))?;
        // SAFETY: the caller promises that `addrlen` says how many bytes can be written at `addr`, and can be written.
        unsafe { give_name(&socket, peer, addr, addrlen) }
    })
}

/// The address of this end: `rgetsockname`.
///
/// # Safety
/// `addrlen` says how many bytes can be written at `addr`, and can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        let local = lock(&socket.state).local;
        let local = local.unwrap_or(unspecified(socket.domain));
        // SAFETY: the caller promises that `addrlen` says how many bytes can be written at `addr`, and can be written.
        unsafe { give_name(&socket, local, addr, addrlen) }
    })
}

/// # Safety
/// As [`rgetsockname`].
unsafe fn give_name(
    socket: &Socket,
    address: SockAddr,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> Result<()> {
    if addr.is_null() || addrlen.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller promises the same as for `rgetsockname`.
    unsafe { give_address(for_domain(address, socket.domain), addr, addrlen) };
    Ok(())
}

/// Flags of an rsocket: `rfcntl` with `F_GETFL`, `F_SETFL` (`O_NONBLOCK`), `F_GETFD` and `F_SETFD`. In C it takes its third
/// argument as one of a list, which lies where a third argument lies.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    as_number(|| {
        let socket = self::socket(socket)?;
        match cmd {
            libc::F_GETFL => {
                let flag = match socket.nonblocking.load(Ordering::Relaxed) {
                    true => libc::O_NONBLOCK,
                    false => 0,
                };
                Ok(libc::O_RDWR | flag)
            }
            libc::F_SETFL => {
                let nonblocking = arg as c_int & libc::O_NONBLOCK != 0;
                socket.nonblocking.store(nonblocking, Ordering::Relaxed);
                Ok(0)
            }
            // SAFETY: flags of a descriptor that is the rsocket's.
            libc::F_GETFD => match unsafe { libc::fcntl(socket.number(), libc::F_GETFD) } {
                -1 => Err(Errno::last()),
                flags => Ok(flags),
            },
            // SAFETY: the same.
            libc::F_SETFD => match unsafe { libc::fcntl(socket.number(), libc::F_SETFD, arg) } {
                -1 => Err(Errno::last()),
                _ => Ok(0),
            },
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}
