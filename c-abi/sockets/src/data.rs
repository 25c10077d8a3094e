//! Functions of sockets that send and receive.

// UNSAFETY: functions of C, in place of the C library's.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libc::{MSG_DONTWAIT, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::address::{self, Whose, whose};
use crate::cancel::holding;
use crate::names::{
    NOBODY, bind_for_sending, is_nonblocking, kind, receive_deadline, wait_for_either,
};
use crate::rdma;
use crate::real::{self, check, errno, set_errno};
use crate::table::{self, Companion};

/// The flag for a call on a descriptor that does not wait.
fn no_wait(fd: c_int) -> c_int {
    if is_nonblocking(fd) { MSG_DONTWAIT } else { 0 }
}

/// Receives from a socket with an rsocket, or from both its sides if datagrams come from both.
fn receive(
    fd: c_int,
    companion: &Companion,
    flags: c_int,
    by_rdma: impl Fn(c_int, c_int) -> ssize_t,
    by_system: impl Fn(c_int) -> ssize_t,
) -> ssize_t {
    let flags = flags | no_wait(fd);
    if !companion.is_both() {
        return by_rdma(companion.rsocket, flags);
    }
    if companion.kind == libc::SOCK_STREAM {
        return by_system(flags);
    }
    let deadline = receive_deadline(fd);
    loop {
        let received = by_rdma(companion.rsocket, flags | MSG_DONTWAIT);
        if received >= 0 || errno() != libc::EAGAIN {
            return received;
        }
        let received = by_system(flags | MSG_DONTWAIT);
        if received >= 0 || errno() != libc::EAGAIN || flags & MSG_DONTWAIT != 0 {
            return received;
        }
        if wait_for_either(fd, companion, deadline).is_none() {
            return -1;
        }
    }
}

/// Receives: `recvfrom`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `recvfrom` asks of its arguments.
    let by_rdma =
        |rsocket, flags| unsafe { rdma::rrecvfrom(rsocket, to, length, flags, addr, addr_length) };
    // SAFETY: the caller promises what the C library's `recvfrom` asks of its arguments.
    let by_system = |flags| unsafe { real::recvfrom(fd, to, length, flags, addr, addr_length) };
    let received = table::with(fd, |companion| {
        receive(fd, companion, flags, by_rdma, by_system)
    });
    match received {
        Some(received) => received,
        None => by_system(flags),
    }
}

/// Receives: `recv`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `recv` asks of its arguments.
    unsafe { recvfrom(fd, to, length, flags, NOBODY.0, NOBODY.1) }
}

/// Receives into several pieces: `recvmsg`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller promises what the C library's `recvmsg` asks of its arguments.
    let by_rdma = |rsocket, flags| unsafe { rdma::rrecvmsg(rsocket, message, flags) };
    // SAFETY: the caller promises what the C library's `recvmsg` asks of its arguments.
    let by_system = |flags| unsafe { real::recvmsg(fd, message, flags) };
    let received = table::with(fd, |companion| {
        receive(fd, companion, flags, by_rdma, by_system)
    });
    match received {
        Some(received) => received,
        None => by_system(flags),
    }
}

/// Receives: `read`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller promises what the C library's `read` asks of its arguments.
    unsafe {
        match table::has(fd) {
            true => recvfrom(fd, to, length, 0, NOBODY.0, NOBODY.1),
            false => real::read(fd, to, length),
        }
    }
}

/// A message of pieces without an address.
fn of_pieces(pieces: *const iovec, count: c_int) -> msghdr {
    // SAFETY: numbers and pointers may be zero.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = pieces.cast_mut();
    message.msg_iovlen = count as usize;
    message
}

/// Receives into several pieces: `readv`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller promises what the C library's `readv` asks of its arguments.
    unsafe {
        match table::has(fd) {
            true => recvmsg(fd, &mut of_pieces(pieces, count), 0),
            false => real::readv(fd, pieces, count),
        }
    }
}

/// Receives, with the size of the memory: what compilers make of `recv`. Ends the process if that is too small.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    check(length, size);
    // SAFETY: the caller promises what the C library's `__recv_chk` asks of its arguments.
    unsafe { recv(fd, to, length, flags) }
}

/// The same of `recvfrom`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    size: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_length: *mut socklen_t,
) -> ssize_t {
    check(length, size);
    // SAFETY: the caller promises what the C library's `__recvfrom_chk` asks of its arguments.
    unsafe { recvfrom(fd, to, length, flags, addr, addr_length) }
}

/// The same of `read`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    size: size_t,
) -> ssize_t {
    check(length, size);
    // SAFETY: the caller promises what the C library's `__read_chk` asks of its arguments.
    unsafe { read(fd, to, length) }
}

/// The sender for a destination, or for none: RDMA or the system.
pub(crate) enum By {
    Rdma(Arc<Companion>),
    System,
}

/// Decides who sends.
///
/// # Safety
/// `length` bytes at `addr` can be read.
pub(crate) unsafe fn sender(fd: c_int, addr: *const sockaddr, length: socklen_t) -> By {
    // SAFETY: the caller promises that `length` bytes at `addr` can be read.
    let to = unsafe { address::read(addr, length) };
    let found = table::find(fd);
    // A stream goes to its other end, wherever else it is said to go.
    let is_stream = |companion: &Arc<Companion>| companion.kind == libc::SOCK_STREAM;
    let to = to.filter(|_| !found.as_ref().is_some_and(is_stream));
    let Some(to) = to else {
        return match found {
            Some(companion) if !companion.is_both() => By::Rdma(companion),
            _ => By::System,
        };
    };
    if rdma::is_inside() || !matches!(whose(to.ip()), Whose::Own | Whose::Near) {
        return By::System;
    }
    let found = found.or_else(|| {
        let kind = kind(fd).filter(|kind| kind.1 == libc::SOCK_DGRAM)?;
        bind_for_sending(fd, kind)
    });
    match found {
        Some(companion) => By::Rdma(companion),
        None => By::System,
    }
}

/// Flags that rsockets have.
fn known(flags: c_int) -> c_int {
    flags & (MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE)
}

/// Sends by an rsocket. One of TCP that does not send any more sends a signal, if that is not refused.
fn send_by_rdma(
    companion: Arc<Companion>,
    flags: c_int,
    call: impl FnOnce(&Companion) -> ssize_t,
) -> ssize_t {
    let is_stream = companion.kind == libc::SOCK_STREAM;
    let sent = holding(companion, |companion| call(companion));
    if sent < 0 && is_stream && flags & libc::MSG_NOSIGNAL == 0 && errno() == libc::EPIPE {
        // SAFETY: takes no pointers.
        unsafe { libc::raise(libc::SIGPIPE) };
        set_errno(libc::EPIPE);
    }
    sent
}

/// Sends: `sendto`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    length: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `sendto` asks of its arguments.
    unsafe {
        match sender(fd, addr, addr_length) {
            By::Rdma(companion) => {
                let (addr, addr_length) = match companion.kind {
                    libc::SOCK_STREAM => (null(), 0),
                    _ => (addr, addr_length),
                };
                let of_rsocket = known(flags) | no_wait(fd);
                send_by_rdma(companion, flags, |companion| {
                    rdma::rsendto(
                        companion.rsocket,
                        from,
                        length,
                        of_rsocket,
                        addr,
                        addr_length,
                    )
                })
            }
            By::System => real::sendto(fd, from, length, flags, addr, addr_length),
        }
    }
}

/// Sends: `send`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    from: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `send` asks of its arguments.
    unsafe { sendto(fd, from, length, flags, null(), 0) }
}

/// Sends several pieces: `sendmsg`. Control messages on rsockets are refused.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `sendmsg` asks of its arguments.
    unsafe {
        let by = match message.as_ref() {
            Some(to) => sender(fd, to.msg_name.cast(), to.msg_namelen),
            None => By::System,
        };
        match by {
            By::Rdma(companion) => {
                // It is there, since it says who sends.
                let mut message = *message;
                if companion.kind == libc::SOCK_STREAM {
                    (message.msg_name, message.msg_namelen) = (null_mut(), 0);
                }
                let of_rsocket = known(flags) | no_wait(fd);
                send_by_rdma(companion, flags, |companion| {
                    rdma::rsendmsg(companion.rsocket, &message, of_rsocket)
                })
            }
            By::System => real::sendmsg(fd, message, flags),
        }
    }
}

/// Sends: `write`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller promises what the C library's `write` asks of its arguments.
    unsafe {
        match table::has(fd) {
            true => sendto(fd, from, length, 0, null(), 0),
            false => real::write(fd, from, length),
        }
    }
}

/// Sends several pieces: `writev`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller promises what the C library's `writev` asks of its arguments.
    unsafe {
        match table::has(fd) {
            true => sendmsg(fd, &of_pieces(pieces, count), 0),
            false => real::writev(fd, pieces, count),
        }
    }
}

/// Bytes of a file that are sent at a time.
const PIECE: usize = 64 << 10;

/// Sends a part of a file: `sendfile`. To an rsocket it is read and sent, as much as one call sends.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if !table::has(to) {
        // SAFETY: the caller promises what the C library's `sendfile` asks of its arguments.
        return unsafe { real::sendfile(to, from, offset, count) };
    }
    // SAFETY: the caller's promise: NULL, or it can be read and written.
    let offset = unsafe { offset.as_mut() };
    // SAFETY: takes no pointers.
    let current = unsafe { libc::lseek(from, 0, libc::SEEK_CUR) };
    let at = offset.as_ref().map_or(current, |offset| **offset);
    let mut bytes = vec![0_u8; count.min(PIECE)];
    // SAFETY: so many bytes can be written.
    let found = unsafe { libc::pread(from, bytes.as_mut_ptr().cast(), bytes.len(), at) };
    let Ok(found) = usize::try_from(found) else {
        return -1;
    };
    let sent = holding(bytes, |bytes| {
        // SAFETY: so many bytes.
        unsafe { sendto(to, bytes.as_ptr().cast(), found, 0, null(), 0) }
    });
    if sent > 0 {
        match offset {
            Some(offset) => *offset = at + sent as off_t,
            None => {
                // SAFETY: takes no pointers.
                unsafe { libc::lseek(from, at + sent as off_t, libc::SEEK_SET) };
            }
        }
    }
    sent
}

/// The same: `sendfile64`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller promises what the C library's `sendfile64` asks of its arguments.
    unsafe { sendfile(to, from, offset, count) }
}
