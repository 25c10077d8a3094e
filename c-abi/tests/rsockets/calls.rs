//! The functions, with results in place of -1 and `errno`.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::Once;
use std::sync::atomic::{AtomicU16, Ordering};

use libc::{
    iovec, msghdr, nfds_t, pollfd, sockaddr, sockaddr_in, sockaddr_in6, socklen_t, ssize_t,
};

// For its functions.
use bareverbs_c as _;

#[path = "random.rs"]
mod random;

mod c {
    use super::*;

    unsafe extern "C" {
        pub(crate) fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        pub(crate) fn rbind(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
        pub(crate) fn rlisten(socket: c_int, backlog: c_int) -> c_int;
        pub(crate) fn raccept(socket: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
        pub(crate) fn rconnect(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
        pub(crate) fn rshutdown(socket: c_int, how: c_int) -> c_int;
        pub(crate) fn rclose(socket: c_int) -> c_int;
        pub(crate) fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> ssize_t;
        pub(crate) fn rsend(socket: c_int, buf: *const c_void, len: usize, flags: c_int)
        -> ssize_t;
        pub(crate) fn rsendto(
            socket: c_int,
            buf: *const c_void,
            len: usize,
            flags: c_int,
            addr: *const sockaddr,
            addrlen: socklen_t,
        ) -> ssize_t;
        pub(crate) fn rrecvfrom(
            socket: c_int,
            buf: *mut c_void,
            len: usize,
            flags: c_int,
            addr: *mut sockaddr,
            addrlen: *mut socklen_t,
        ) -> ssize_t;
        pub(crate) fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
        pub(crate) fn rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        pub(crate) fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int;
        pub(crate) fn rsetsockopt(
            socket: c_int,
            level: c_int,
            name: c_int,
            value: *const c_void,
            len: socklen_t,
        ) -> c_int;
        pub(crate) fn rgetsockopt(
            socket: c_int,
            level: c_int,
            name: c_int,
            value: *mut c_void,
            len: *mut socklen_t,
        ) -> c_int;
        pub(crate) fn rgetpeername(
            socket: c_int,
            addr: *mut sockaddr,
            len: *mut socklen_t,
        ) -> c_int;
    }
}

/// The addresses of the two models.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Lets this process have two models, before the first of them is opened.
pub(crate) fn setup() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: each test begins with this, and no other thread looks at the environment before.
        unsafe {
            std::env::set_var("BAREVERBS_DEVICE", "model,model");
            std::env::set_var("BAREVERBS_RSOCKET_PROBE", crate::PROBE);
        }
    });
}

/// A port that no other test has.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(5000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) use random::{Random, seeds};

pub(crate) type Result<T> = std::result::Result<T, c_int>;

fn done(result: impl Into<i64>) -> Result<usize> {
    match result.into() {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        value => Ok(usize::try_from(value).unwrap()),
    }
}

pub(crate) fn to_c(ip: Ipv4Addr, port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// The server's address of IPv6.
fn to_c6(port: u16) -> sockaddr_in6 {
    sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: port.to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets(),
        },
        sin6_scope_id: 0,
    }
}

const LENGTH: socklen_t = size_of::<sockaddr_in>() as socklen_t;
const LENGTH_6: socklen_t = size_of::<sockaddr_in6>() as socklen_t;

/// An rsocket, closed when it is dropped.
pub(crate) struct Socket(pub(crate) c_int);

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: takes no pointers.
        unsafe { c::rclose(self.0) };
    }
}

impl Socket {
    pub(crate) fn new() -> Self {
        Self::of(libc::AF_INET, libc::SOCK_STREAM)
    }

    /// One for datagrams.
    pub(crate) fn datagrams() -> Self {
        Self::of(libc::AF_INET, libc::SOCK_DGRAM)
    }

    pub(crate) fn of(domain: c_int, kind: c_int) -> Self {
        // SAFETY: takes no pointers.
        let number = done(unsafe { c::rsocket(domain, kind, 0) });
        Self(number.unwrap() as c_int)
    }

    pub(crate) fn bind(&self, ip: Ipv4Addr, port: u16) -> Result<()> {
        let address = to_c(ip, port);
        // SAFETY: an address and its length.
        done(unsafe { c::rbind(self.0, (&raw const address).cast(), LENGTH) }).map(drop)
    }

    /// Binds to an address of IPv6.
    pub(crate) fn bind_v6(&self, port: u16) -> Result<()> {
        let address = to_c6(port);
        // SAFETY: an address and its length.
        done(unsafe { c::rbind(self.0, (&raw const address).cast(), LENGTH_6) }).map(drop)
    }

    /// Connects to an address of IPv6.
    pub(crate) fn connect_v6(&self, port: u16) -> Result<()> {
        let address = to_c6(port);
        // SAFETY: an address and its length.
        done(unsafe { c::rconnect(self.0, (&raw const address).cast(), LENGTH_6) }).map(drop)
    }

    pub(crate) fn listen(&self) -> Result<()> {
        // SAFETY: takes no pointers.
        done(unsafe { c::rlisten(self.0, 5) }).map(drop)
    }

    /// One that listens at the server's address.
    pub(crate) fn listener(port: u16) -> Self {
        let listener = Self::new();
        listener.bind(SERVER, port).unwrap();
        listener.listen().unwrap();
        listener
    }

    pub(crate) fn accept(&self) -> Result<Self> {
        // SAFETY: without pointers.
        let number = unsafe { c::raccept(self.0, std::ptr::null_mut(), std::ptr::null_mut()) };
        done(number).map(|number| Self(number as c_int))
    }

    pub(crate) fn connect(&self, port: u16) -> Result<()> {
        let address = to_c(SERVER, port);
        // SAFETY: an address and its length.
        done(unsafe { c::rconnect(self.0, (&raw const address).cast(), LENGTH) }).map(drop)
    }

    /// One at the client's address that is connected.
    pub(crate) fn client(port: u16) -> Self {
        let client = Self::new();
        client.bind(CLIENT, 0).unwrap();
        client.connect(port).unwrap();
        client
    }

    pub(crate) fn shutdown(&self, how: c_int) -> Result<()> {
        // SAFETY: takes no pointers.
        done(unsafe { c::rshutdown(self.0, how) }).map(drop)
    }

    pub(crate) fn close(self) -> Result<()> {
        let number = self.0;
        std::mem::forget(self);
        // SAFETY: takes no pointers.
        done(unsafe { c::rclose(number) }).map(drop)
    }

    pub(crate) fn recv(&self, buffer: &mut [u8], flags: c_int) -> Result<usize> {
        // SAFETY: so many bytes.
        done(unsafe { c::rrecv(self.0, buffer.as_mut_ptr().cast(), buffer.len(), flags) } as i64)
    }

    pub(crate) fn send(&self, bytes: &[u8], flags: c_int) -> Result<usize> {
        // SAFETY: so many bytes.
        done(unsafe { c::rsend(self.0, bytes.as_ptr().cast(), bytes.len(), flags) } as i64)
    }

    /// Sends a datagram to an address.
    pub(crate) fn send_to(&self, bytes: &[u8], to: SocketAddrV4) -> Result<usize> {
        let address = to_c(*to.ip(), to.port());
        let (from, to) = (bytes.as_ptr().cast(), (&raw const address).cast());
        // SAFETY: so many bytes, and an address with its length.
        done(unsafe { c::rsendto(self.0, from, bytes.len(), 0, to, LENGTH) } as i64)
    }

    /// Receives a datagram with its sender.
    pub(crate) fn recv_from(
        &self,
        buffer: &mut [u8],
        flags: c_int,
    ) -> Result<(usize, SocketAddrV4)> {
        let (mut address, mut length) = (to_c(Ipv4Addr::UNSPECIFIED, 0), LENGTH);
        let (to, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        let from = (&raw mut address).cast();
        // SAFETY: so many bytes, and an address with its length.
        let received = unsafe { c::rrecvfrom(self.0, to, size, flags, from, &mut length) };
        let received = done(received as i64)?;
        let ip = u32::from_be(address.sin_addr.s_addr);
        let port = u16::from_be(address.sin_port);
        Ok((received, SocketAddrV4::new(ip.into(), port)))
    }

    /// Sends two pieces with one call.
    pub(crate) fn send_two(&self, first: &[u8], second: &[u8]) -> Result<usize> {
        self.send_pieces(&[first, second], 0)
    }

    /// Sends pieces with one call.
    pub(crate) fn send_pieces(&self, pieces: &[&[u8]], flags: c_int) -> Result<usize> {
        let mut pieces = Vec::from_iter(pieces.iter().map(|piece| iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        }));
        // SAFETY: numbers and pointers may be zero.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        // SAFETY: so many pieces, which can be read.
        done(unsafe { c::rsendmsg(self.0, &message, flags) } as i64)
    }

    pub(crate) fn set(&self, level: c_int, name: c_int, value: c_int) -> Result<()> {
        let pointer = (&raw const value).cast();
        // SAFETY: a number and its length.
        done(unsafe { c::rsetsockopt(self.0, level, name, pointer, 4) }).map(drop)
    }

    pub(crate) fn get(&self, level: c_int, name: c_int) -> Result<c_int> {
        let (mut value, mut length) = (0, 4);
        let pointer = (&raw mut value).cast();
        // SAFETY: a number and its length.
        done(unsafe { c::rgetsockopt(self.0, level, name, pointer, &mut length) })?;
        Ok(value)
    }

    pub(crate) fn set_nonblocking(&self) {
        let flag = libc::O_NONBLOCK.into();
        // SAFETY: takes no pointers.
        done(unsafe { c::rfcntl(self.0, libc::F_SETFL, flag) }).unwrap();
    }

    pub(crate) fn peer_name(&self) -> Result<SocketAddrV4> {
        let (mut address, mut length) = (to_c(Ipv4Addr::UNSPECIFIED, 0), LENGTH);
        // SAFETY: an address and its length.
        done(unsafe { c::rgetpeername(self.0, (&raw mut address).cast(), &mut length) })?;
        let ip = u32::from_be(address.sin_addr.s_addr);
        Ok(SocketAddrV4::new(ip.into(), u16::from_be(address.sin_port)))
    }
}

/// Waits for events of descriptors; which there are.
pub(crate) fn poll(wanted: &[(c_int, i16)], timeout: c_int) -> Vec<i16> {
    let mut entries: Vec<pollfd> = wanted
        .iter()
        .map(|(fd, events)| pollfd {
            fd: *fd,
            events: *events,
            revents: 0,
        })
        .collect();
    let count = entries.len() as nfds_t;
    // SAFETY: so many entries.
    done(unsafe { c::rpoll(entries.as_mut_ptr(), count, timeout) }).unwrap();
    entries.iter().map(|entry| entry.revents).collect()
}
