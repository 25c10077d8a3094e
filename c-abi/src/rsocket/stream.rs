//! `rsocket`, `rbind`, `rlisten`, `raccept`, `rconnect`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bareverbs_node::Address;
use bareverbs_node::cm::rdma::{CmId, PortSpace, SockAddr};
use libc::{sockaddr, socklen_t};

use crate::process::device::{DeviceObject, devices};
use crate::process::failure::{Errno, Result, as_number, as_status, lock};
use crate::process::hca::Hca;
use crate::process::tasks::{self, Tasks};
use crate::rdmacm::id::local_addr;
use crate::rdmacm::sockaddr::{self as socket_address, check_length, from_c, to_c};
use crate::rsocket::connection::End;
use crate::rsocket::datagram::Datagrams;
use crate::rsocket::events::{self, handle_all};
use crate::rsocket::ids::destroy;
use crate::rsocket::options::Options;
use crate::rsocket::port;
use crate::rsocket::socket::{
    Listener, Phase, Socket, State, check_family, for_domain, of_ip, unmapped, unspecified,
};
use crate::rsocket::table::{self, socket};
use crate::rsocket::task::as_length;

/// The time that looking for the other end's address may take.
const RESOLVE: Duration = Duration::from_secs(5);
/// The fewest connections that wait for `raccept`, whatever the program says.
const BACKLOG: usize = 16;

/// Makes an rsocket: `rsocket`. The type may have `SOCK_NONBLOCK` and `SOCK_CLOEXEC`; its number is closed on `exec` in any
/// case, since another program can do nothing with it.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    as_number(|| {
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let kind = kind & !flags;
        let fits = matches!(domain, libc::AF_INET | libc::AF_INET6 | libc::AF_IB)
            && matches!(
                (kind, protocol),
                (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP)
                    | (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP)
            );
        if !fits {
            return Err(Errno::EOPNOTSUPP);
        }
        // librdmacm takes a UDP socket for datagrams, which Linux does not have for AF_IB.
        if (domain, kind) == (libc::AF_IB, libc::SOCK_DGRAM) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        // Without a device there are none.
        devices()?.first().ok_or(Errno::ENODEV)?;
        tasks::add(Tasks {
            turn: events::progress,
            end: table::end,
        });
        let socket = Socket::new(domain, kind, Options::DEFAULT)?;
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        socket.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(table::publish(socket))
    })
}

/// An address of C with its length, as the connection manager has it.
///
/// # Safety
/// `length` bytes at `addr` can be read.
pub(super) unsafe fn address(addr: *const sockaddr, length: socklen_t) -> Result<SockAddr> {
    if addr.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller promises that `length` bytes at `addr` can be read.
    unsafe { check_length(addr, length) }?;
    // SAFETY: it is as long as its family says.
    let address = unsafe { from_c(addr) }?.ok_or(Errno::EINVAL)?;
    Ok(unmapped(address))
}

/// Writes an address for a program, as much of it as there is room for.
///
/// # Safety
/// Both are NULL, or `length` says how many bytes can be written at `addr`, and can be written.
pub(super) unsafe fn give_address(address: SockAddr, addr: *mut sockaddr, length: *mut socklen_t) {
    let (storage, full) = to_c(address);
    // SAFETY: the caller promises that both are NULL, or `length` says how many bytes can be written at `addr`, and can be
    // written.
    if let Some(length) = unsafe { length.as_mut() }
        && !addr.is_null()
    {
        let room = (*length).min(full) as usize;
        let from = (&raw const storage).cast::<u8>();
        // SAFETY: the caller's promise, and the storage is longer.
        unsafe { std::ptr::copy_nonoverlapping(from, addr.cast::<u8>(), room) };
        *length = full;
    }
}

fn is_on(device: &DeviceObject, ip: IpAddr) -> bool {
    device.addresses().iter().any(|address| address.ip == ip)
}

/// Returns `true` if an rsocket that is bound to an address is on a device.
fn is_for(device: &'static DeviceObject, address: &SockAddr) -> Result<bool> {
    let any = socket_address::ip(address).is_unspecified();
    match address {
        SockAddr::Ip(address) => Ok(any || is_on(device, address.ip())),
        SockAddr::Ib(_) if any => Ok(device.hca()?.is_infiniband()),
        SockAddr::Ib(address) => device.hca()?.has_gid(address.gid),
    }
}

/// Returns `true` if an address is in the network of another one.
fn is_near(address: &Address, ip: IpAddr) -> bool {
    let prefix = u32::from(address.prefix_len());
    match (address.ip, ip) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            let differs = u32::from(own) ^ u32::from(other);
            differs.checked_shr(32 - prefix.min(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            let differs = u128::from(own) ^ u128::from(other);
            differs.checked_shr(128 - prefix.min(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The device for an address elsewhere.
fn device_to(address: &SockAddr) -> Result<&'static Hca> {
    let devices = devices()?;
    let ip = match address {
        SockAddr::Ip(address) => address.ip(),
        SockAddr::Ib(_) => {
            // All of them are in the one subnet.
            for device in devices {
                let hca = device.hca()?;
                if hca.is_infiniband() {
                    return Ok(hca);
                }
            }
            return Err(Errno::ENODEV);
        }
    };
    let near = |device: &&DeviceObject| {
        let mut addresses = device.addresses().iter();
        is_on(device, ip) || addresses.any(|address| is_near(address, ip))
    };
    let device = devices.iter().find(near).or(devices.first());
    device.ok_or(Errno::ENODEV)?.hca()
}

/// A new id for an rsocket.
fn create_id(socket: &Socket, options: &Options, hca: &'static Hca) -> Result<CmId> {
    let channel = port::port(hca)?.channel;
    let mut manager = hca.manager()?;
    let space = match socket.kind {
        libc::SOCK_STREAM => PortSpace::Tcp,
        _ => PortSpace::Udp,
    };
    let id = manager.create_id(Some(channel), socket.serial, space)?;
    for option in options.of_id() {
        if let Err(error) = manager.set_option(id, option) {
            log::debug!("rsocket: {error}");
        }
    }
    Ok(id)
}

/// Gives an rsocket an address, on all devices if it is the one for all.
pub(super) fn bind(socket: &Socket, state: &mut State, address: SockAddr) -> Result<()> {
    if !matches!(state.phase, Phase::New) {
        return Err(Errno::EINVAL);
    }
    check_family(&address, socket.domain)?;
    let mut address = address;
    if socket_address::ip(&address).is_unspecified() {
        address = for_domain(address, socket.domain);
    }
    let mut ids = Vec::new();
    let bound = (|| {
        for device in devices()? {
            if !is_for(device, &address)? {
                continue;
            }
            // Datagrams come and go by one device.
            if socket.kind == libc::SOCK_DGRAM && !ids.is_empty() {
                break;
            }
            let hca = device.hca()?;
            let id = create_id(socket, &state.options, hca)?;
            ids.push((hca, id));
            let mut manager = hca.manager()?;
            manager.bind_addr(id, address)?;
            // The other devices take the port that the first one has found.
            if let Some(local) = local_addr(&manager, id)? {
                address = local;
            }
        }
        let (hca, id) = *ids.first().ok_or(Errno(libc::EADDRNOTAVAIL))?;
        if socket.kind != libc::SOCK_DGRAM {
            return Ok(None);
        }
        hca.manager()?.listen(id, 0)?;
        let port = port::port(hca)?;
        let local = of_ip(address)?;
        Datagrams::new(port, &state.options.sizes, socket.serial, local).map(Some)
    })();
    let datagrams = bound.inspect_err(|_| destroy(&ids))?;
    state.ids = ids;
    state.local = Some(address);
    state.phase = match datagrams {
        Some(datagrams) => {
            socket.watch(datagrams.events());
            // As `rlisten` says it.
            log::info!("rbind: datagrams at port {}", address.port());
            Phase::Datagrams(Box::new(datagrams))
        }
        None => Phase::Bound,
    };
    Ok(())
}

/// Takes an rsocket to where it was before it has listened or tried to connect: with the address that it was bound to.
pub(super) fn reset(socket: &Socket, state: &mut State) {
    destroy(&std::mem::take(&mut state.ids));
    state.peer = None;
    state.phase = Phase::New;
    if let Some(local) = state.local.take()
        && let Err(errno) = bind(socket, state, local)
    {
        log::debug!("rsocket: {} is lost: {errno:?}", local.port());
    }
}

/// Checks a local address of datagrams, whose family is that of the domain: there the kernel's socket is bound (`inet_bind` and
/// `inet6_bind`), which looks at the length first.
///
/// # Errors
/// EINVAL for an address that is too short for one of the domain, and EAFNOSUPPORT.
fn check_own_family(family: libc::sa_family_t, length: socklen_t, domain: c_int) -> Result<()> {
    if c_int::from(family) == domain {
        return Ok(());
    }
    // `SIN6_LEN_RFC2133`.
    if domain == libc::AF_INET6 && length < 24 {
        return Err(Errno::EINVAL);
    }
    Err(Errno(libc::EAFNOSUPPORT))
}

/// Gives an rsocket a local address: `rbind`.
///
/// # Safety
/// `addrlen` bytes at `addr` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `addrlen` bytes at `addr` can be read.
        let address = unsafe { self::address(addr, addrlen) }?;
        if socket.kind == libc::SOCK_DGRAM {
            // SAFETY: the address has been read.
            check_own_family(unsafe { (*addr).sa_family }, addrlen, socket.domain)?;
        }
        bind(&socket, &mut lock(&socket.state), address)
    })
}

/// Waits for connections: `rlisten`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        let mut state = lock(&socket.state);
        let backlog = usize::try_from(backlog).unwrap_or(0).max(BACKLOG);
        if let Phase::Listening(listener) = &mut state.phase {
            listener.backlog = backlog;
            return Ok(());
        }
        if matches!(state.phase, Phase::New) {
            bind(&socket, &mut state, unspecified(socket.domain))?;
        }
        if socket.kind == libc::SOCK_DGRAM {
            return Err(Errno::EOPNOTSUPP);
        }
        if !matches!(state.phase, Phase::Bound) {
            return Err(Errno::EINVAL);
        }
        for (hca, id) in &state.ids {
            hca.manager()?.listen(*id, 0)?;
        }
        state.phase = Phase::Listening(Listener {
            backlog,
            ready: VecDeque::new(),
            pending: Vec::new(),
            own: Arc::downgrade(&socket),
        });
        // Servers print nothing when they are ready; test harnesses wait for this.
        let port = state.local.map_or(0, |local| local.port());
        log::info!("rlisten: at port {port}");
        Ok(())
    })
}

/// Takes a connection: `raccept`. What it returns waits in its calls, also if the listener does not.
///
/// # Safety
/// Both pointers are NULL, or `addrlen` says how many bytes can be written at `addr`, and can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let number = as_length(|| async move {
        let socket = self::socket(socket)?;
        if socket.kind == libc::SOCK_DGRAM && lock(&socket.state).options.is_ordinary {
            return Err(Errno::EOPNOTSUPP);
        }
        let accepted = socket
            .wait(
                socket.receive_deadline(),
                socket.is_nonblocking(0),
                |state| {
                    let Phase::Listening(listener) = &mut state.phase else {
                        return Some(Err(Errno::EINVAL));
                    };
                    listener.ready.pop_front().map(Ok)
                },
            )
            .await?;
        let peer = lock(&accepted.state).peer;
        let peer = for_domain(peer.unwrap_or(unspecified(socket.domain)), socket.domain);
        // SAFETY: the caller promises that both pointers are NULL, or `addrlen` says how many bytes can be written at `addr`,
        // and can be written.
        unsafe { give_address(peer, addr, addrlen) };
        Ok(table::publish(accepted) as usize)
    });
    number as c_int
}

/// Begins to connect; `false` if it has begun before, and the outcome is to be said.
fn begin(socket: &Socket, to: SockAddr) -> Result<bool> {
    let mut state = lock(&socket.state);
    match &state.phase {
        Phase::New | Phase::Bound => {}
        Phase::Failed if !state.closed => {
            if !state.options.is_ordinary {
                state.local = None;
            }
            state.error = None;
            reset(socket, &mut state);
        }
        // One that waits does so also when it did not before, as that of TCP does.
        Phase::Connecting(_) if state.options.is_ordinary && !socket.is_nonblocking(0) => {
            return Ok(false);
        }
        Phase::Connecting(_) => return Err(Errno(libc::EALREADY)),
        // The first call after the connection is there says that it is, as that of TCP does.
        Phase::Open(_) if state.options.is_ordinary && state.is_awaited => return Ok(false),
        Phase::Open(_) => return Err(Errno(libc::EISCONN)),
        Phase::Listening(_) if state.options.is_ordinary => return Err(Errno(libc::EISCONN)),
        Phase::Listening(_) | Phase::Datagrams(_) | Phase::Failed => return Err(Errno::EINVAL),
    }
    check_family(&to, socket.domain)?;
    let bound_to = |ids: &[(&'static Hca, CmId)]| match ids {
        [(hca, _)] => Some(*hca),
        _ => None,
    };
    let hca = match bound_to(&state.ids) {
        Some(hca) => hca,
        None => device_to(&to)?,
    };
    let is_here = |(at, _): &&(&'static Hca, CmId)| std::ptr::eq(*at, hca);
    let id = match state.ids.iter().find(is_here) {
        Some((_, id)) => *id,
        None => create_id(socket, &state.options, hca)?,
    };
    let others: Vec<_> = state
        .ids
        .iter()
        .filter(|(_, other)| *other != id)
        .copied()
        .collect();
    destroy(&others);
    state.ids = vec![(hca, id)];
    state.peer = Some(to);
    state.phase = Phase::Connecting(None);
    let source = None::<SockAddr>;
    let asked = hca.manager()?.resolve_addr(id, source, to, RESOLVE);
    if let Err(error) = asked {
        state.fail(error.into());
    }
    Ok(true)
}

/// Gives datagrams without an address the one where they go, and from which alone they come.
fn connect_datagrams(socket: &Socket, to: SockAddr) -> Result<()> {
    let there = of_ip(to)?;
    check_family(&to, socket.domain)?;
    let mut state = lock(&socket.state);
    if matches!(state.phase, Phase::New) {
        bind(socket, &mut state, unspecified(socket.domain))?;
    }
    match &mut state.phase {
        Phase::Datagrams(datagrams) => datagrams.connected = Some(there),
        _ => return Err(Errno::EINVAL),
    }
    state.peer = Some(to);
    Ok(())
}

/// Connects: `rconnect`. Without waiting, the outcome is there when the rsocket is writable.
///
/// # Safety
/// `addrlen` bytes at `addr` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    let status = as_length(|| async move {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `addrlen` bytes at `addr` can be read.
        let to = unsafe { address(addr, addrlen) }?;
        if socket_address::ip(&to).is_unspecified() || to.port() == 0 {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        if socket.kind == libc::SOCK_DGRAM {
            return connect_datagrams(&socket, to).map(|()| 0);
        }
        let begun = begin(&socket, to)?;
        // Whether the other end has answered already or not: as it is if that is far away.
        let comes_later = begun && socket.is_nonblocking(0);
        let hca = lock(&socket.state).ids.first().map(|(hca, _)| *hca);
        if let Some(port) = hca.and_then(port::existing) {
            handle_all(port);
        }
        let connected = socket
            .wait(
                socket.send_deadline(),
                socket.is_nonblocking(0),
                |state| match &state.phase {
                    Phase::Open(connection) => Some(match connection.end {
                        End::Broken(errno) => Err(errno),
                        End::Open | End::Closed => Ok(0),
                    }),
                    Phase::Failed
                        if comes_later && state.error == Some(Errno(libc::ECONNREFUSED)) =>
                    {
                        Some(Ok(0))
                    }
                    Phase::Failed => {
                        let errno = state.error.take();
                        if state.options.is_ordinary {
                            reset(&socket, state);
                        }
                        Some(Err(errno.unwrap_or(Errno(libc::ECONNREFUSED))))
                    }
                    _ => None,
                },
            )
            .await;
        lock(&socket.state).is_awaited = match connected {
            Ok(_) => comes_later,
            Err(errno) => matches!(errno.0, libc::EAGAIN | libc::EINTR),
        };
        match connected {
            Ok(_) if comes_later => Err(Errno(libc::EINPROGRESS)),
            Err(Errno(libc::EAGAIN)) if begun => Err(Errno(libc::EINPROGRESS)),
            Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EALREADY)),
            connected => connected,
        }
    });
    status as c_int
}
