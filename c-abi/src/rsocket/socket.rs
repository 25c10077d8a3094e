//! An rsocket: its state, and how calls wait for it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bareverbs_node::cm::rdma::{CmId, PortSpace, SockAddr, SockaddrIb};
use bareverbs_node::verbs::{CqEvents, Gid, Platform};

use crate::process::descriptor::Counter;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::Hca;
use crate::process::memory;
use crate::process::owner;
use crate::process::settings;
use crate::rsocket::connection::{Connection, End};
use crate::rsocket::datagram::Datagrams;
use crate::rsocket::ids::destroy;
use crate::rsocket::options::Options;
use crate::rsocket::table;
use crate::rsocket::task::block_on;
use crate::rsocket::wait::{Waiter, Waiters, sleep};
use crate::rsocket::wire::Message;

/// The time that closing waits for what was sent, if the program does not say.
const LINGER: Duration = Duration::from_secs(30);

/// An rsocket.
pub(super) struct Socket {
    /// Its descriptor, which is there for its number.
    reserved: Counter,
    pub(super) serial: u64,
    /// `AF_INET`, `AF_INET6` or `AF_IB`, and `SOCK_STREAM` or `SOCK_DGRAM`; not the last of both.
    pub(super) domain: c_int,
    pub(super) kind: c_int,
    pub(super) state: Mutex<State>,
    pub(super) waiters: Waiters,
    /// Calls do not wait.
    pub(super) nonblocking: AtomicBool,
    /// The completion events of its connection.
    events: Mutex<Option<CqEvents<'static>>>,
    /// When the other end is asked for a sign of life, in milliseconds on the device's clock.
    probe_at: AtomicU64,
}

/// The state that changes.
pub(super) struct State {
    pub(super) options: Options,
    pub(super) phase: Phase,
    /// The error that a call has to report.
    pub(super) error: Option<Errno>,
    /// Its ids: one, or on a listener for all addresses one for each device.
    pub(super) ids: Vec<(&'static Hca, CmId)>,
    /// Addresses that the ids do not have, or do not have any more.
    pub(super) local: Option<SockAddr>,
    pub(super) peer: Option<SockAddr>,
    /// The listener that has to hand it out.
    pub(super) parent: Option<Weak<Socket>>,
    /// The program has closed it.
    pub(super) closed: bool,
    /// A call has begun to connect, and none has said yet that it is connected.
    pub(super) is_awaited: bool,
}

/// The phase of an rsocket.
pub(super) enum Phase {
    New,
    Bound,
    Listening(Listener),
    /// Looking for the other end, or, with a connection, waiting for its answer.
    Connecting(Option<Box<Connection>>),
    Open(Box<Connection>),
    /// Ready for datagrams.
    Datagrams(Box<Datagrams>),
    /// Connecting has failed.
    Failed,
}

/// Connections of a listener.
pub(super) struct Listener {
    pub(super) backlog: usize,
    /// Those that `raccept` can have.
    pub(super) ready: VecDeque<Arc<Socket>>,
    /// Those that were accepted and are not confirmed.
    pub(super) pending: Vec<Arc<Socket>>,
    /// The listener itself, for these.
    pub(super) own: Weak<Socket>,
}

impl Socket {
    /// A new one, which events find.
    pub(super) fn new(domain: c_int, kind: c_int, options: Options) -> Result<Arc<Self>> {
        memory::check()?;
        let socket = Arc::new(Self {
            reserved: Counter::new()?,
            serial: table::next_serial(),
            domain,
            kind,
            state: Mutex::new(State {
                options,
                phase: Phase::New,
                error: None,
                ids: Vec::new(),
                local: None,
                peer: None,
                parent: None,
                closed: false,
                is_awaited: false,
            }),
            waiters: Waiters::default(),
            nonblocking: AtomicBool::new(false),
            events: Mutex::new(None),
            probe_at: AtomicU64::new(0),
        });
        table::enter(&socket);
        Ok(socket)
    }

    /// Its number.
    pub(super) fn number(&self) -> c_int {
        self.reserved.fd()
    }

    /// Returns `true` if calls with these flags do not wait.
    pub(super) fn is_nonblocking(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.nonblocking.load(Ordering::Relaxed)
    }

    /// When a call that receives gives up.
    pub(super) fn receive_deadline(&self) -> Option<Instant> {
        deadline(lock(&self.state).options.receive_timeout)
    }

    /// When a call that sends gives up.
    pub(super) fn send_deadline(&self) -> Option<Instant> {
        deadline(lock(&self.state).options.send_timeout)
    }

    /// Completion events are looked for from now on.
    pub(super) fn watch(&self, events: CqEvents<'static>) {
        *lock(&self.events) = Some(events);
    }

    /// Returns `true` if it has completion events.
    pub(super) fn is_watched(&self) -> bool {
        lock(&self.events).is_some()
    }

    /// A turn of the thread that drives the device.
    pub(super) fn on_turn(&self, now: Duration) {
        let has_event = lock(&self.events).as_mut().is_some_and(CqEvents::take);
        if self.waiters.is_empty() {
            if has_event {
                // No thread waits: only the other end is to be told what it waits for.
                let mut state = lock(&self.state);
                state.process();
                state.settle();
            }
            return;
        }
        if has_event {
            self.waiters.wake();
        }
        let Some(silence) = settings::rsocket_probe() else {
            return;
        };
        let now = now.as_millis() as u64;
        let at = self.probe_at.load(Ordering::Relaxed);
        if now >= at {
            let next = now + silence.as_millis() as u64;
            self.probe_at.store(next, Ordering::Relaxed);
            if at != 0
                && let Phase::Open(connection) = &mut lock(&self.state).phase
            {
                connection.probe();
                if connection.end != End::Open {
                    self.waiters.wake();
                }
            }
        }
    }

    /// Waits until `test` has a result, as long as the program has not closed the rsocket.
    ///
    /// # Errors
    /// EAGAIN if it must not wait or the deadline is there, EINTR after a signal, EBADF if it was closed meanwhile.
    pub(super) async fn wait<R>(
        &self,
        deadline: Option<Instant>,
        nonblocking: bool,
        mut test: impl FnMut(&mut State) -> Option<Result<R>>,
    ) -> Result<R> {
        let mut attempt = |is_waiting: bool| {
            let mut state = lock(&self.state);
            if state.closed {
                return Some(Err(Errno(libc::EBADF)));
            }
            if is_waiting {
                state.arm();
            }
            state.process();
            let result = test(&mut state);
            state.settle();
            if result.is_none() && !is_waiting {
                state.relax();
            }
            result
        };
        if let Some(result) = attempt(false) {
            return result;
        }
        if nonblocking {
            return Err(Errno(libc::EAGAIN));
        }
        let waiter = Waiter::own()?;
        let mut others = Vec::new();
        loop {
            waiter.clear();
            let _entered = self.waiters.enter(&waiter);
            if let Some(result) = attempt(true) {
                return result;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Errno(libc::EAGAIN));
            }
            sleep(&waiter, &mut others, deadline).await?;
        }
    }

    /// Says to the other end that this one sends, and with `last` also receives, no more, and waits until what was sent has
    /// arrived.
    pub(super) async fn say_end(&self, message: Message, deadline: Option<Instant>) -> Result<()> {
        let mut said = false;
        self.wait(deadline, false, |state| {
            let connection = match &mut state.phase {
                Phase::Open(connection) => connection,
                Phase::Datagrams(datagrams) => return datagrams.is_quiet().then_some(Ok(())),
                _ => return Some(Ok(())),
            };
            if !said {
                match connection.say_end(message) {
                    Ok(is_said) => said = is_said,
                    Err(errno) => connection.break_off(errno),
                }
            }
            let is_done = connection.end != End::Open || said && connection.is_quiet();
            is_done.then_some(Ok(()))
        })
        .await
    }

    /// Returns `true` if this is the copy of a process that has forked: the device is the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        owner::in_child() && !lock(&self.state).ids.is_empty()
    }

    /// Closes: what was sent arrives, unless that takes too long. No thread is cancelled meanwhile.
    pub(super) fn finish(&self, deadline: Option<Instant>) -> Result<()> {
        let deadline = {
            let mut state = lock(&self.state);
            let linger = state.options.linger.unwrap_or(LINGER);
            if let Phase::Open(connection) = &mut state.phase {
                (connection.shut_read, connection.shut_write) = (true, true);
            }
            deadline.or_else(|| Instant::now().checked_add(linger))
        };
        let finished = loop {
            match block_on(self.say_end(Message::Disconnect, deadline)) {
                Err(Errno(libc::EINTR)) => {}
                finished => break finished,
            }
        };
        let ids = {
            let mut state = lock(&self.state);
            state.closed = true;
            *lock(&self.events) = None;
            // The connection goes, and the connections of a listener that were not accepted.
            state.phase = Phase::Failed;
            std::mem::take(&mut state.ids)
        };
        destroy(&ids);
        table::leave(self.serial);
        self.waiters.wake();
        match finished {
            Err(Errno(libc::EAGAIN)) => {
                log::warn!("rsocket {}: closed before all was sent", self.number());
                Ok(())
            }
            finished => finished,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A connection that was not accepted.
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
        state.phase = Phase::Failed;
        destroy(&state.ids);
        table::leave(self.serial);
    }
}

/// So much later than now; never if there is no such time.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

impl State {
    /// Takes completions.
    pub(super) fn process(&mut self) {
        match &mut self.phase {
            Phase::Open(connection) => connection.process(),
            Phase::Datagrams(datagrams) => datagrams.process(),
            _ => {}
        }
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) {
        match &mut self.phase {
            Phase::Open(connection) => connection.arm(),
            Phase::Datagrams(datagrams) => datagrams.arm(),
            _ => {}
        }
    }

    /// Arranges that messages which the other end has not got yet are sent at the next completion, whether a call waits or not.
    pub(super) fn settle(&mut self) {
        if let Phase::Open(connection) = &mut self.phase
            && connection.has_untold()
        {
            connection.arm();
            connection.process();
        }
    }

    /// Leaves the processor to what a program waits for that asks in a loop.
    pub(super) fn relax(&self) {
        let hca = match &self.phase {
            Phase::Open(connection) => connection.hca,
            Phase::Datagrams(datagrams) => datagrams.hca,
            _ => return,
        };
        hca.device.platform().relax();
    }

    /// Connecting has failed.
    pub(super) fn fail(&mut self, errno: Errno) {
        self.phase = Phase::Failed;
        self.error = Some(errno);
    }

    /// Takes the error to be reported, once.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        if let Some(errno) = self.error.take() {
            return Some(errno);
        }
        match &mut self.phase {
            Phase::Datagrams(datagrams) => datagrams.failure.take(),
            Phase::Open(connection) => match connection.end {
                End::Broken(errno) => Some(errno),
                End::Open | End::Closed => None,
            },
            _ => None,
        }
    }
}

/// An address as the connection manager has it: one of IPv4 that is written as one of IPv6 is of IPv4.
pub(super) fn unmapped(address: SockAddr) -> SockAddr {
    match address {
        SockAddr::Ip(SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(IpAddr::V4(ip), v6.port()).into(),
            None => address,
        },
        _ => address,
    }
}

/// An address as a program with sockets of this domain sees it.
pub(super) fn for_domain(address: SockAddr, domain: c_int) -> SockAddr {
    match address {
        SockAddr::Ip(SocketAddr::V4(v4)) if domain == libc::AF_INET6 => {
            let ip = if v4.ip().is_unspecified() {
                Ipv6Addr::UNSPECIFIED
            } else {
                v4.ip().to_ipv6_mapped()
            };
            SocketAddr::new(IpAddr::V6(ip), v4.port()).into()
        }
        _ => address,
    }
}

/// No address.
pub(super) fn unspecified(domain: c_int) -> SockAddr {
    let ip = match domain {
        libc::AF_IB => return SockaddrIb::new(Gid::ZERO, PortSpace::Tcp, 0).into(),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0).into()
}

/// Checks that sockets of a domain may have an address: those of IPv6 also one of IPv4.
///
/// # Errors
/// EAFNOSUPPORT.
pub(super) fn check_family(address: &SockAddr, domain: c_int) -> Result<()> {
    let fits = match address {
        SockAddr::Ip(SocketAddr::V4(_)) => matches!(domain, libc::AF_INET | libc::AF_INET6),
        SockAddr::Ip(SocketAddr::V6(_)) => domain == libc::AF_INET6,
        SockAddr::Ib(_) => domain == libc::AF_IB,
    };
    if fits {
        Ok(())
    } else {
        Err(Errno(libc::EAFNOSUPPORT))
    }
}

/// The address of datagrams, which are of IP.
///
/// # Errors
/// EAFNOSUPPORT for another one.
pub(super) fn of_ip(address: SockAddr) -> Result<SocketAddr> {
    match address {
        SockAddr::Ip(address) => Ok(address),
        SockAddr::Ib(_) => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_fit_their_domains() {
        let ip = |text: &str| SockAddr::from(text.parse::<SocketAddr>().unwrap());
        let (v4, v6) = (ip("10.0.0.1:7"), ip("[fd00::1]:7"));
        let ib = unspecified(libc::AF_IB);
        for (domain, fits) in [
            (libc::AF_INET, [true, false, false]),
            (libc::AF_INET6, [true, true, false]),
            (libc::AF_IB, [false, false, true]),
        ] {
            let found = [v4, v6, ib].map(|address| check_family(&address, domain).is_ok());
            assert_eq!(found, fits, "{domain}");
            assert!(check_family(&unspecified(domain), domain).is_ok());
        }
        assert_eq!(for_domain(v4, libc::AF_INET6), ip("[::ffff:10.0.0.1]:7"));
        assert_eq!(unmapped(ip("[::ffff:10.0.0.1]:7")), v4);
        assert_eq!((unmapped(ib), for_domain(ib, libc::AF_IB)), (ib, ib));
        assert!(of_ip(ib).is_err());
    }
}
