//! Companions of sockets from their start to their end: binding, listening, connecting, accepting, closing; options.

// UNSAFETY: functions of C, in place of the C library's.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{pollfd, sockaddr, socklen_t, timeval};

use crate::address::{self, Whose, whose};
use crate::cancel::holding;
use crate::interest;
use crate::rdma;
use crate::real::{self, errno, set_errno};
use crate::table::{self, Companion};
use crate::wait::millis;

/// An option of a socket of the system's that is a number.
fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length) = (0, size_of::<c_int>() as socklen_t);
    let to = (&raw mut value).cast();
    // SAFETY: a number and its length.
    (unsafe { real::getsockopt(fd, level, name, to, &mut length) } == 0).then_some(value)
}

/// Domain and type, if it is a socket for streams or datagrams of IP.
pub(crate) fn kind(fd: c_int) -> Option<(c_int, c_int)> {
    if rdma::is_inside() {
        return None;
    }
    let domain = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let kind = option(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    let protocol = option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)?;
    let fits = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && matches!(
            (kind, protocol),
            (libc::SOCK_STREAM, libc::IPPROTO_TCP) | (libc::SOCK_DGRAM, libc::IPPROTO_UDP)
        );
    fits.then_some((domain, kind))
}

/// Returns `true` if calls on a descriptor do not wait. The system's socket has the flag, however it was set.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
}

pub(crate) fn set_nonblocking(rsocket: c_int, nonblocking: bool) {
    let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
    // SAFETY: takes no pointers.
    unsafe { rdma::rfcntl(rsocket, libc::F_SETFL, flags.into()) };
}

/// Level and option of our library by which an rsocket answers as the socket does that it stands for.
const SOL_ORDINARY: c_int = 0x10001;
const ORDINARY: c_int = 0;

/// Options that an rsocket takes over from the system's socket.
const OPTIONS: [(c_int, c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// The options for the time that calls wait.
const TIMEOUTS: [c_int; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];

/// The time that calls on a socket of the system's wait, for one of [`TIMEOUTS`].
fn timeout(fd: c_int, name: c_int) -> Option<timeval> {
    let mut value = timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut length = size_of::<timeval>() as socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: a time and its length.
    let found = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut length) };
    (found == 0).then_some(value)
}

/// When a call that receives gives up; never if the socket has no such time.
pub(crate) fn receive_deadline(fd: c_int) -> Option<Instant> {
    let value = timeout(fd, libc::SO_RCVTIMEO)?;
    let seconds = u64::try_from(value.tv_sec).ok()?;
    let micros = u64::try_from(value.tv_usec).ok()?;
    let timeout = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
    if timeout.is_zero() {
        return None;
    }
    Instant::now().checked_add(timeout)
}

/// An rsocket for a socket of the system's, with its options; `None` if there is none to be had.
pub(crate) fn companion(fd: c_int, kind: (c_int, c_int)) -> Option<Arc<Companion>> {
    // SAFETY: takes no pointers.
    let rsocket = unsafe { rdma::rsocket(kind.0, kind.1, 0) };
    if rsocket < 0 {
        return None;
    }
    let companion = Arc::new(Companion::new(fd, rsocket, kind));
    let on: c_int = 1;
    // SAFETY: a number and its length.
    unsafe { rdma::rsetsockopt(rsocket, SOL_ORDINARY, ORDINARY, (&raw const on).cast(), 4) };
    for (level, name) in OPTIONS {
        if let Some(value) = option(fd, level, name) {
            let value = (&raw const value).cast();
            // SAFETY: a number and its length. What it does not have does not matter.
            unsafe { rdma::rsetsockopt(rsocket, level, name, value, 4) };
        }
    }
    if option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT) == Some(1) {
        // The nearest that it has.
        let (name, value) = (libc::SO_REUSEADDR, (&raw const on).cast());
        // SAFETY: a number and its length.
        unsafe { rdma::rsetsockopt(rsocket, libc::SOL_SOCKET, name, value, 4) };
    }
    for name in TIMEOUTS {
        if let Some(value) = timeout(fd, name) {
            let length = size_of::<timeval>() as socklen_t;
            let value = (&raw const value).cast();
            // SAFETY: a time and its length.
            unsafe { rdma::rsetsockopt(rsocket, libc::SOL_SOCKET, name, value, length) };
        }
    }
    Some(companion)
}

/// The port of a socket of the system's.
pub(crate) fn port(fd: c_int) -> Option<u16> {
    let (mut storage, mut length) = address::any(libc::AF_INET6, 0);
    length = length.max(size_of::<libc::sockaddr_storage>() as socklen_t);
    let to = (&raw mut storage).cast();
    // SAFETY: so many bytes can be written.
    if unsafe { real::getsockname(fd, to, &mut length) } != 0 {
        return None;
    }
    // SAFETY: a whole address.
    unsafe { address::read(to, length) }.map(|address| address.port())
}

/// Returns `true` if a socket of the system's may share its port in a way that rsockets do not: several of them listen there.
fn shares_port(fd: c_int, kind: c_int) -> bool {
    let is_on = |name| option(fd, libc::SOL_SOCKET, name) == Some(1);
    is_on(libc::SO_REUSEPORT) || kind == libc::SOCK_DGRAM && is_on(libc::SO_REUSEADDR)
}

/// Returns `true` if the last call has found its port taken: the second one is how Linux's RDMA CM says that a socket with an
/// address of its own has it.
fn is_taken() -> bool {
    matches!(errno(), libc::EADDRINUSE | libc::EADDRNOTAVAIL)
}

/// The port of a socket is another one's.
struct Taken;

/// An rsocket that is bound to all addresses, for a socket of the system's that is, or is to be. None if that is to be on the
/// system's network alone.
fn companion_of_all(
    fd: c_int,
    kind: (c_int, c_int),
    port: u16,
) -> Result<Option<Arc<Companion>>, Taken> {
    let Some(companion) = companion(fd, kind) else {
        return Ok(None);
    };
    companion.set_both(true);
    let (storage, length) = address::any(kind.0, port);
    // SAFETY: a whole address.
    if unsafe { rdma::rbind(companion.rsocket, (&raw const storage).cast(), length) } == 0 {
        return Ok(Some(companion));
    }
    if is_taken() && !shares_port(fd, kind.1) {
        return Err(Taken);
    }
    Ok(None)
}

/// A socket of the system's that is bound to all addresses gets an rsocket with the same port.
fn bind_both(fd: c_int, kind: (c_int, c_int)) -> Result<(), Taken> {
    if let Some(port) = port(fd)
        && let Some(companion) = companion_of_all(fd, kind, port)?
    {
        table::insert(fd, companion);
    }
    Ok(())
}

/// Binds a socket to all addresses: its rsocket first, as the system's cannot be taken back; but where the system chooses the port,
/// that one.
///
/// # Safety
/// That of `bind`.
unsafe fn bind_to_all(
    fd: c_int,
    kind: (c_int, c_int),
    port: u16,
    addr: *const sockaddr,
    length: socklen_t,
) -> Result<c_int, Taken> {
    let companion = match port {
        0 => None,
        port => companion_of_all(fd, kind, port)?,
    };
    // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
    let bound = unsafe { real::bind(fd, addr, length) };
    if bound != 0 {
        let why = errno();
        drop(companion);
        set_errno(why);
    } else if let Some(companion) = companion {
        table::insert(fd, companion);
    } else if port == 0 {
        bind_both(fd, kind)?;
    }
    Ok(bound)
}

/// Returns `true` if an address is of a domain, as the system wants it for all but datagrams.
fn is_of(domain: c_int, address: &SocketAddr) -> bool {
    address.is_ipv6() == (domain == libc::AF_INET6)
}

/// Binds a socket: `bind`. To an address of our ports: the rsocket. To all addresses: both.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bind(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
    let to = unsafe { address::read(addr, length) };
    let known = to.and_then(|to| Some((to, kind(fd)?)));
    let Some((to, kind)) = known.filter(|(to, kind)| is_of(kind.0, to)) else {
        // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
        return unsafe { real::bind(fd, addr, length) };
    };
    if let Some(companion) = table::find(fd) {
        if !companion.has_lost_address() {
            set_errno(libc::EINVAL);
            return -1;
        }
        // As a socket of TCP that could not connect.
        table::remove(fd);
    }
    match whose(to.ip()) {
        Whose::Own => {
            let Some(companion) = companion(fd, kind) else {
                // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
                return unsafe { real::bind(fd, addr, length) };
            };
            // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
            let bound = unsafe { rdma::rbind(companion.rsocket, addr, length) };
            if bound == 0 {
                table::insert(fd, companion);
            }
            bound
        }
        // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
        Whose::Any => match unsafe { bind_to_all(fd, kind, to.port(), addr, length) } {
            Ok(bound) => bound,
            Err(Taken) => {
                set_errno(libc::EADDRINUSE);
                -1
            }
        },
        // SAFETY: the caller promises what the C library's `bind` asks of its arguments.
        Whose::Near | Whose::System => unsafe { real::bind(fd, addr, length) },
    }
}

/// Waits for connections: `listen`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let found = table::find(fd);
    if found.as_ref().is_none_or(|companion| companion.is_both()) {
        // SAFETY: takes no pointers.
        let listens = unsafe { real::listen(fd, backlog) };
        if listens != 0 {
            return listens;
        }
    }
    let Some(companion) = found else {
        return 0;
    };
    // SAFETY: takes no pointers.
    let listens = unsafe { rdma::rlisten(companion.rsocket, backlog) };
    if listens != 0 && is_taken() && companion.is_both() && shares_port(fd, companion.kind) {
        // Another socket listens for both: this one listens on the system's network.
        table::remove(fd);
        return 0;
    }
    listens
}

/// Connects a socket: `connect`. In our networks by RDMA, or by the system's network if that fails at once and the
/// address is not one of our ports.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    addr: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the C library's `connect` asks of its arguments.
    let to = unsafe { address::read(addr, length) };
    let known = to.and_then(|to| Some((to, kind(fd)?)));
    let fits =
        |(to, kind): &(SocketAddr, (c_int, c_int))| kind.1 == libc::SOCK_DGRAM || is_of(kind.0, to);
    if let Some((to, kind)) = known.filter(fits) {
        let owner = whose(to.ip());
        let is_ours = matches!(owner, Whose::Own | Whose::Near);
        let found = table::find(fd);
        if !is_ours {
            // Also what was bound to all addresses is the system's from now on.
            table::remove(fd);
        } else if let Some(companion) = found.or_else(|| {
            let companion = companion(fd, kind)?;
            companion.set_unbound();
            Some(companion)
        }) {
            let connected = holding(companion, |companion| {
                set_nonblocking(companion.rsocket, is_nonblocking(fd));
                // SAFETY: the caller promises what the C library's `connect` asks of its arguments.
                let connected = unsafe { rdma::rconnect(companion.rsocket, addr, length) };
                let why = errno();
                if connected == 0 || matches!(why, libc::EINPROGRESS | libc::EALREADY | libc::EINTR)
                {
                    companion.set_both(false);
                    table::insert(fd, companion.clone());
                    return Some((connected, why));
                }
                // An address of ours is not tried on the system's network, where it may be another machine's.
                let stays = why == libc::EISCONN || owner == Whose::Own;
                stays.then_some((connected, why))
            });
            if let Some((connected, why)) = connected {
                // That of a new rsocket which did not connect may be another one now that it is closed.
                set_errno(why);
                return connected;
            }
            table::remove(fd);
        }
    }
    // SAFETY: the caller promises what the C library's `connect` asks of its arguments.
    unsafe { real::connect(fd, addr, length) }
}

/// Waits until one of a socket's two sides has something to read. Which: the rsocket, the system's; EINTR after a signal, and
/// EAGAIN at the deadline.
pub(crate) fn wait_for_either(
    fd: c_int,
    companion: &Companion,
    deadline: Option<Instant>,
) -> Option<(bool, bool)> {
    let entry = |fd| pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [entry(companion.rsocket), entry(fd)];
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    // SAFETY: two entries.
    let ready = unsafe { rdma::rpoll(both.as_mut_ptr(), 2, millis(left)) };
    if ready == 0 {
        set_errno(libc::EAGAIN);
    }
    if ready <= 0 {
        return None;
    }
    Some((both[0].revents != 0, both[1].revents != 0))
}

/// Accepts a connection: `accept`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the C library's `accept` asks of its arguments.
    unsafe { accept4(fd, addr, length, 0) }
}

/// Accepts a connection, by RDMA or by the system's network: `accept4`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let accepted = table::with(fd, |companion| {
        // SAFETY: the caller promises what the C library's `accept4` asks of its arguments.
        unsafe { accept_by_either(fd, companion, addr, length, flags) }
    });
    match accepted {
        Some(accepted) => accepted,
        // SAFETY: the caller promises what the C library's `accept4` asks of its arguments.
        None => unsafe { real::accept4(fd, addr, length, flags) },
    }
}

/// Accepts a connection of a socket with an rsocket.
///
/// # Safety
/// That of `accept4`.
unsafe fn accept_by_either(
    fd: c_int,
    companion: &Companion,
    addr: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let nonblocking = is_nonblocking(fd);
    set_nonblocking(companion.rsocket, nonblocking || companion.is_both());
    let deadline = receive_deadline(fd);
    loop {
        // SAFETY: the caller promises that that of `accept4`.
        let accepted = unsafe { rdma::raccept(companion.rsocket, addr, length) };
        if accepted >= 0 {
            return place(accepted, fd, companion, flags);
        }
        if errno() != libc::EAGAIN || !companion.is_both() {
            return -1;
        }
        let by_system = nonblocking
            || match wait_for_either(fd, companion, deadline) {
                Some((false, true)) => true,
                Some(_) => false,
                None => return -1,
            };
        if by_system {
            // SAFETY: the caller promises that that of `accept4`.
            return unsafe { real::accept4(fd, addr, length, flags) };
        }
    }
}

/// Options that the socket of a connection has from its listener, besides [`OPTIONS`] and [`TIMEOUTS`].
const OF_LISTENER: [c_int; 2] = [libc::SO_OOBINLINE, libc::SO_LINGER];

/// Sets an option of a socket of the system's as another one has it.
fn take_over(fd: c_int, from: c_int, level: c_int, name: c_int) {
    let mut value = [0_u8; size_of::<timeval>()];
    let mut length = value.len() as socklen_t;
    // SAFETY: so many bytes, which can be written and read.
    unsafe {
        if real::getsockopt(from, level, name, value.as_mut_ptr().cast(), &mut length) == 0 {
            real::setsockopt(fd, level, name, value.as_ptr().cast(), length);
        }
    }
}

/// A descriptor for a connection that was accepted by RDMA.
fn place(rsocket: c_int, by: c_int, listener: &Companion, flags: c_int) -> c_int {
    let kind = (listener.domain, listener.kind);
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(kind.0, kind.1 | flags, 0) };
    let why = errno();
    // Closes it if there is no descriptor.
    let companion = Arc::new(Companion::new(fd, rsocket, kind));
    if fd < 0 {
        drop(companion);
        set_errno(why);
        return -1;
    }
    if !table::insert(fd, companion) {
        // SAFETY: it was just opened.
        unsafe { real::close(fd) };
        set_errno(libc::EMFILE);
        return -1;
    }
    // The rsocket has taken them over.
    let others = TIMEOUTS.into_iter().chain(OF_LISTENER);
    let others = others.map(|name| (libc::SOL_SOCKET, name));
    for (level, name) in OPTIONS.into_iter().chain(others) {
        take_over(fd, by, level, name);
    }
    for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        // It is told as twice what is set.
        if let Some(size) = option(by, libc::SOL_SOCKET, name).map(|size| size / 2) {
            // SAFETY: a number and its length.
            unsafe { real::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const size).cast(), 4) };
        }
    }
    fd
}

/// Ends one direction or both: `shutdown`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let found = table::find(fd);
    // SAFETY: takes no pointers.
    unsafe {
        match found {
            Some(companion) if companion.is_both() => {
                rdma::rshutdown(companion.rsocket, how);
                real::shutdown(fd, how)
            }
            Some(companion) => rdma::rshutdown(companion.rsocket, how),
            None => real::shutdown(fd, how),
        }
    }
}

/// Closes a descriptor: `close`. The last one of an rsocket waits until what was sent has arrived.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !rdma::is_inside() {
        interest::forget(fd);
        drop(table::remove(fd));
    }
    // SAFETY: takes no pointers.
    unsafe { real::close(fd) }
}

/// Duplicates a descriptor: `dup`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: takes no pointers.
    let copied = unsafe { real::dup(fd) };
    table::copy(fd, copied);
    copied
}

/// Duplicates a descriptor to a number: `dup2`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: takes no pointers.
    let copied = unsafe { real::dup2(fd, to) };
    table::copy(fd, copied);
    copied
}

/// Duplicates a descriptor to a number: `dup3`.
///
/// # Safety
/// None.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: takes no pointers.
    let copied = unsafe { real::dup3(fd, to, flags) };
    table::copy(fd, copied);
    copied
}

/// Commands of a descriptor: `fcntl`. The flags of a socket are the system's, and duplicates are ours to know.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller promises what the C library's `fcntl` asks of its arguments.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        table::copy(fd, result);
    }
    result
}

/// The same: `fcntl64`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller promises what the C library's `fcntl64` asks of its arguments.
    unsafe { fcntl(fd, command, argument) }
}

/// The address of this end: `getsockname`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the C library's `getsockname` asks of its arguments.
    match table::find(fd).filter(|companion| !companion.is_both()) {
        // SAFETY: the caller promises what the C library's `getsockname` asks of its arguments.
        Some(companion) => unsafe { rdma::rgetsockname(companion.rsocket, addr, length) },
        // SAFETY: the caller promises what the C library's `getsockname` asks of its arguments.
        None => unsafe { real::getsockname(fd, addr, length) },
    }
}

/// The address of the other end: `getpeername`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    match table::find(fd).filter(|companion| !companion.is_both()) {
        // SAFETY: the caller promises what the C library's `getpeername` asks of its arguments.
        Some(companion) => unsafe { rdma::rgetpeername(companion.rsocket, addr, length) },
        // SAFETY: the caller promises what the C library's `getpeername` asks of its arguments.
        None => unsafe { real::getpeername(fd, addr, length) },
    }
}

/// Sets an option: `setsockopt`. The system's socket has it, and the rsocket if it knows it.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if let Some(companion) = table::find(fd) {
        // SAFETY: the caller promises what the C library's `setsockopt` asks of its arguments.
        unsafe { rdma::rsetsockopt(companion.rsocket, level, name, value, length) };
    }
    // SAFETY: the caller promises what the C library's `setsockopt` asks of its arguments.
    unsafe { real::setsockopt(fd, level, name, value, length) }
}

/// Says how an option is set: `getsockopt`. The pending error is the rsocket's.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let own = (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
        || (level, name) == (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    match table::find(fd).filter(|companion| own && !companion.is_both()) {
        // SAFETY: the caller promises what the C library's `getsockopt` asks of its arguments.
        Some(companion) => unsafe {
            rdma::rgetsockopt(companion.rsocket, level, name, value, length)
        },
        // SAFETY: the caller promises what the C library's `getsockopt` asks of its arguments.
        None => unsafe { real::getsockopt(fd, level, name, value, length) },
    }
}

/// Binds a socket for datagrams that has no address yet to all, before it sends into one of our networks.
pub(crate) fn bind_for_sending(fd: c_int, kind: (c_int, c_int)) -> Option<Arc<Companion>> {
    if port(fd)? == 0 {
        let (storage, length) = address::any(kind.0, 0);
        // SAFETY: a whole address.
        unsafe { real::bind(fd, (&raw const storage).cast(), length) };
    }
    bind_both(fd, kind).ok();
    table::find(fd)
}

/// No address is asked for.
pub(crate) const NOBODY: (*mut sockaddr, *mut socklen_t) = (null_mut(), null_mut());
