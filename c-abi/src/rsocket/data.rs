//! Functions of rsockets that send and receive.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::slice;

use bareverbs_node::cm::rdma::SockAddr;
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::process::failure::{Errno, Result, lock};
use crate::rsocket::connection::{Connection, End};
use crate::rsocket::remaining::Remaining;
use crate::rsocket::socket::{Phase, Socket, State, for_domain, of_ip, unspecified};
use crate::rsocket::stream::{address, bind, give_address};
use crate::rsocket::table::socket;
use crate::rsocket::task::as_length;

/// The most entries of a list, as the kernel has it.
const MOST_ENTRIES: usize = 1024;

/// The connection of an rsocket, or why it has none.
pub(super) fn connection(state: &mut State) -> Option<Result<&mut Connection>> {
    match &mut state.phase {
        Phase::Open(connection) => Some(Ok(connection)),
        // It will have one.
        Phase::Connecting(_) => None,
        Phase::Failed => Some(Err(state.error.take().unwrap_or(Errno(libc::ENOTCONN)))),
        Phase::New | Phase::Bound | Phase::Listening(_) | Phase::Datagrams(_) => {
            Some(Err(Errno(libc::ENOTCONN)))
        }
    }
}

/// Sends a datagram, to the address that the rsocket is connected to if none is given.
async fn send_datagram(
    socket: &Socket,
    parts: &[&[u8]],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize> {
    let total = parts.iter().map(|part| part.len()).sum();
    if to.is_some_and(|to| to.port() == 0) {
        return Err(Errno::EINVAL);
    }
    if to.is_some_and(|to| to.is_ipv6() && socket.domain == libc::AF_INET) {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    {
        let mut state = lock(&socket.state);
        if matches!(state.phase, Phase::New) {
            bind(socket, &mut state, unspecified(socket.domain))?;
        }
    }
    socket
        .wait(
            socket.send_deadline(),
            socket.is_nonblocking(flags),
            |state| {
                let Phase::Datagrams(datagrams) = &mut state.phase else {
                    return Some(Err(Errno(libc::ENOTCONN)));
                };
                if let Some(errno) = datagrams.failure.take() {
                    return Some(Err(errno));
                }
                let Some(to) = to.or(datagrams.connected) else {
                    return Some(Err(Errno(libc::EDESTADDRREQ)));
                };
                match datagrams.send(to, parts) {
                    Ok(true) => Some(Ok(total)),
                    Ok(false) => None,
                    Err(errno) => Some(Err(errno)),
                }
            },
        )
        .await
}

/// Receives a datagram: how many bytes it has, of which those are lost that there is no room for, and from where it is.
async fn receive_datagram(
    socket: &Socket,
    parts: &mut [&mut [u8]],
    flags: c_int,
) -> Result<(usize, SocketAddr)> {
    {
        let mut state = lock(&socket.state);
        if matches!(state.phase, Phase::New) {
            bind(socket, &mut state, unspecified(socket.domain))?;
        }
    }
    let is_peek = flags & libc::MSG_PEEK != 0;
    socket
        .wait(
            socket.receive_deadline(),
            socket.is_nonblocking(flags),
            |state| {
                let Phase::Datagrams(datagrams) = &mut state.phase else {
                    return Some(Err(Errno(libc::ENOTCONN)));
                };
                match datagrams.receive(parts, is_peek) {
                    Ok(None) => datagrams.failure.take().map(Err),
                    received => received.transpose(),
                }
            },
        )
        .await
}

/// Sends all of it, or without waiting as much as is possible at once; a datagram also to an address.
async fn send(
    socket: &Socket,
    parts: &[&[u8]],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize> {
    if socket.kind == libc::SOCK_DGRAM {
        return send_datagram(socket, parts, flags, to).await;
    }
    if to.is_some() {
        // A stream has its address.
        return Err(Errno(libc::EISCONN));
    }
    let known = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_WAITALL;
    if flags & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut left = Remaining::new(parts);
    let total = left.length();
    let nonblocking = socket.is_nonblocking(flags);
    let finished = socket
        .wait(socket.send_deadline(), nonblocking, |state| {
            let is_ordinary = state.options.is_ordinary;
            let connection = match connection(state)? {
                Ok(connection) => connection,
                Err(Errno(libc::ENOTCONN)) if is_ordinary => return Some(Err(Errno(libc::EPIPE))),
                Err(errno) => return Some(Err(errno)),
            };
            if !connection.is_writable() {
                return Some(Err(connection.send_error(is_ordinary)));
            }
            if let Err(errno) = connection.send(&mut left) {
                connection.break_off(errno);
                return Some(Err(errno));
            }
            (left.length() == 0).then_some(Ok(()))
        })
        .await;
    let sent = total - left.length();
    match finished {
        // What was posted before counts.
        Err(_) if sent > 0 => Ok(sent),
        Err(errno) => Err(errno),
        Ok(()) => Ok(sent),
    }
}

/// Receives what there is, or with `MSG_WAITALL` as much as there is room for.
async fn receive(socket: &Socket, parts: &mut [&mut [u8]], flags: c_int) -> Result<Received> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    if socket.kind == libc::SOCK_DGRAM {
        let (length, from) = receive_datagram(socket, parts, flags).await?;
        let from = for_domain(from.into(), socket.domain);
        return Ok(Received {
            length: match flags & libc::MSG_TRUNC {
                0 => length.min(total),
                _ => length,
            },
            is_cut: length > total,
            from: Some(from),
        });
    }
    let known = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    if flags & !known & !libc::MSG_CMSG_CLOEXEC != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_peek = flags & libc::MSG_PEEK != 0;
    let waits_for_all = flags & libc::MSG_WAITALL != 0 && !is_peek;
    let (mut received, mut part, mut at) = (0, 0, 0);
    let finished = socket
        .wait(
            socket.receive_deadline(),
            socket.is_nonblocking(flags),
            |state| {
                let connection = match connection(state)? {
                    Ok(connection) => connection,
                    Err(errno) => return Some(Err(errno)),
                };
                let mut peeked = 0;
                while let Some(bytes) = parts.get_mut(part) {
                    let copied = match connection.copy_out(&mut bytes[at..], peeked) {
                        Ok(copied) => copied,
                        Err(errno) => return Some(Err(errno)),
                    };
                    if is_peek {
                        peeked += copied;
                    } else {
                        connection.consume(copied);
                    }
                    (received, at) = (received + copied, at + copied);
                    if at < bytes.len() {
                        break;
                    }
                    (part, at) = (part + 1, 0);
                }
                if received == total || received > 0 && !waits_for_all {
                    return Some(Ok(()));
                }
                match connection.end {
                    End::Broken(errno) => Some(Err(errno)),
                    End::Closed => Some(Ok(())),
                    End::Open if connection.peer_shut || connection.shut_read => Some(Ok(())),
                    End::Open => None,
                }
            },
        )
        .await;
    match finished {
        // What came before counts.
        Err(errno) if received == 0 => Err(errno),
        _ => Ok(Received {
            length: received,
            is_cut: false,
            from: None,
        }),
    }
}

/// The result of a call that receives.
struct Received {
    length: usize,
    /// There was no room for all of a datagram.
    is_cut: bool,
    /// Where a datagram is from.
    from: Option<SockAddr>,
}

/// Memory of the program to read from.
///
/// # Safety
/// `length` bytes at `buf` can be read.
pub(super) unsafe fn bytes<'a>(buf: *const c_void, length: size_t) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if buf.is_null() || length > isize::MAX as usize {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller promises that `length` bytes at `buf` can be read.
    Ok(unsafe { slice::from_raw_parts(buf.cast(), length) })
}

/// Memory of the program to write to.
///
/// # Safety
/// `length` bytes at `buf` can be written.
unsafe fn bytes_mut<'a>(buf: *mut c_void, length: size_t) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buf.is_null() || length > isize::MAX as usize {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise. What the program has not initialised is only written to.
    Ok(unsafe { slice::from_raw_parts_mut(buf.cast(), length) })
}

/// A list of pieces of memory.
///
/// # Safety
/// There are `count` pieces at `list`.
unsafe fn entries<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    if count > MOST_ENTRIES {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises that there are `count` pieces at `list`.
    Ok(unsafe { slice::from_raw_parts(list, count) })
}

/// # Safety
/// As `rwritev`.
async unsafe fn send_list(
    number: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize> {
    let socket = self::socket(number)?;
    // SAFETY: the caller promises that there are so many.
    let parts: Vec<&[u8]> = unsafe { entries(list, count) }?
        .iter()
        // SAFETY: the caller promises that there are so many.
        .map(|entry| unsafe { bytes(entry.iov_base, entry.iov_len) })
        .collect::<Result<_>>()?;
    send(&socket, &parts, flags, to).await
}

/// # Safety
/// As `rreadv`.
async unsafe fn receive_list(
    number: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<Received> {
    let socket = self::socket(number)?;
    // SAFETY: the caller promises that there are so many.
    let mut parts: Vec<&mut [u8]> = unsafe { entries(list, count) }?
        .iter()
        // SAFETY: the caller promises that there are so many.
        .map(|entry| unsafe { bytes_mut(entry.iov_base, entry.iov_len) })
        .collect::<Result<_>>()?;
    receive(&socket, &mut parts, flags).await
}

/// Receives: `rrecv`.
///
/// # Safety
/// `len` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `len` bytes at `buf` can be written.
        let bytes = unsafe { bytes_mut(buf, len) }?;
        Ok(receive(&socket, &mut [bytes], flags).await?.length)
    })
}

/// Receives, and says from where: `rrecvfrom`. On a stream there is nothing to say.
///
/// # Safety
/// `len` bytes at `buf` can be written; `src_addr` and `addrlen` are NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `len` bytes at `buf` can be written; `src_addr` and `addrlen` are NULL or can be written.
        let bytes = unsafe { bytes_mut(buf, len) }?;
        let received = receive(&socket, &mut [bytes], flags).await?;
        // SAFETY: the caller promises that `len` bytes at `buf` can be written; `src_addr` and `addrlen` are NULL or can be written.
        unsafe {
            if let Some(from) = received.from {
                give_address(from, src_addr, addrlen);
            } else if let Some(length) = addrlen.as_mut() {
                *length = 0;
            }
        }
        Ok(received.length)
    })
}

/// Receives into several pieces: `rrecvmsg`. There are no control messages.
///
/// # Safety
/// `msg` is a structure of the headers, with memory that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    as_length(|| async move {
        // SAFETY: the caller promises that `msg` is a structure of the headers, with memory that can be written.
        let msg = unsafe { msg.as_mut() }.ok_or(Errno(libc::EFAULT))?;
        // SAFETY: the caller promises that `msg` is a structure of the headers, with memory that can be written.
        let received =
            unsafe { receive_list(socket, msg.msg_iov, msg.msg_iovlen as _, flags) }.await?;
        (msg.msg_controllen, msg.msg_flags) = (0, 0);
        if received.is_cut {
            msg.msg_flags = libc::MSG_TRUNC;
        }
        match received.from {
            // SAFETY: the caller promises that `msg` is a structure of the headers, with memory that can be written.
            Some(from) => unsafe {
                give_address(from, msg.msg_name.cast(), &raw mut msg.msg_namelen);
            },
            None => msg.msg_namelen = 0,
        }
        Ok(received.length)
    })
}

/// Receives: `rread`.
///
/// # Safety
/// `count` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller promises that `count` bytes at `buf` can be written.
    unsafe { rrecv(socket, buf, count, 0) }
}

/// Receives into several pieces: `rreadv`.
///
/// # Safety
/// There are `iovcnt` pieces at `iov`, which can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    as_length(|| async move {
        let count = usize::try_from(iovcnt).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the caller promises that there are `iovcnt` pieces at `iov`, which can be written.
        Ok(unsafe { receive_list(socket, iov, count, 0) }.await?.length)
    })
}

/// Sends: `rsend`.
///
/// # Safety
/// `len` bytes at `buf` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `len` bytes at `buf` can be read.
        let bytes = unsafe { bytes(buf, len) }?;
        send(&socket, &[bytes], flags, None).await
    })
}

/// Where a datagram goes, if that is said.
///
/// # Safety
/// `length` bytes at `addr` can be read.
unsafe fn destination(addr: *const sockaddr, length: socklen_t) -> Result<Option<SocketAddr>> {
    if addr.is_null() || length == 0 {
        return Ok(None);
    }
    // SAFETY: the caller promises that `length` bytes at `addr` can be read.
    of_ip(unsafe { address(addr, length) }?).map(Some)
}

/// Sends to an address: `rsendto`. A stream has its address already.
///
/// # Safety
/// `len` bytes at `buf` and `addrlen` bytes at `dest_addr` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `len` bytes at `buf` and `addrlen` bytes at `dest_addr` can be read.
        let (bytes, to) = unsafe { (bytes(buf, len)?, destination(dest_addr, addrlen)?) };
        send(&socket, &[bytes], flags, to).await
    })
}

/// Sends several pieces: `rsendmsg`. Control messages are refused.
///
/// # Safety
/// `msg` is a structure of the headers, with memory that can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rsendmsg(
    socket: c_int,
    msg: *const msghdr,
    flags: c_int,
) -> ssize_t {
    as_length(|| async move {
        // SAFETY: the caller promises that `msg` is a structure of the headers, with memory that can be read.
        let msg = unsafe { msg.as_ref() }.ok_or(Errno(libc::EFAULT))?;
        if msg.msg_controllen != 0 && !msg.msg_control.is_null() {
            return Err(Errno::EOPNOTSUPP);
        }
        // SAFETY: the caller promises that `msg` is a structure of the headers, with memory that can be read.
        unsafe {
            let to = destination(msg.msg_name.cast(), msg.msg_namelen)?;
            send_list(socket, msg.msg_iov, msg.msg_iovlen as _, flags, to).await
        }
    })
}

/// Sends: `rwrite`.
///
/// # Safety
/// `count` bytes at `buf` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rwrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller promises that `count` bytes at `buf` can be read.
    unsafe { rsend(socket, buf, count, 0) }
}

/// Sends several pieces: `rwritev`.
///
/// # Safety
/// There are `iovcnt` pieces at `iov`, which can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rwritev(
    socket: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> ssize_t {
    as_length(|| async move {
        let count = usize::try_from(iovcnt).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the caller promises that there are `iovcnt` pieces at `iov`, which can be read.
        unsafe { send_list(socket, iov, count, 0, None) }.await
    })
}
