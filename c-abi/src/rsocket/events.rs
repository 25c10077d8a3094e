//! Events of the connection manager: the steps of connecting and accepting.

use std::sync::{Arc, TryLockError};
use std::time::Duration;

use bareverbs_node::cm::rdma::{CmEvent, CmId, EventType, IdOption};
use bareverbs_node::verbs::QpState;

use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::Hca;
use crate::process::settings;
use crate::rdmacm::id::{local_addr, peer_addr};
use crate::rsocket::connection::{Connection, End};
use crate::rsocket::port::{self, Port};
use crate::rsocket::socket::{Phase, Socket, State};
use crate::rsocket::table;
use crate::rsocket::wire::Hello;

/// The time that finding a route may take.
const ROUTE: Duration = Duration::from_secs(2);

/// The time that the thread that drives a device sleeps at most while there are connections, whose other ends are asked for
/// signs of life.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// A turn of the thread that drives a device. When the next one has to be at the latest.
pub(crate) fn progress(hca: &'static Hca, now: Duration) -> Option<Duration> {
    let port = port::existing(hca)?;
    {
        // Another thread that has it may have looked before the newest event was there.
        let _turn = lock(&port.turn);
        handle_events(port);
    }
    let watched = table::all(Socket::is_watched);
    for socket in &watched {
        socket.on_turn(now);
    }
    let probe = settings::rsocket_probe()?;
    (!watched.is_empty()).then(|| now + LONGEST_SLEEP.min(probe))
}

/// Handles the events that there are, unless another thread does.
pub(super) fn handle_all(port: &'static Port) {
    let _turn = match port.turn.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    handle_events(port);
}

fn handle_events(port: &'static Port) {
    let mut handled = false;
    loop {
        // To look for events makes none.
        let event = match port.hca.manager_quietly() {
            Ok(mut manager) => manager.try_get_cm_event(port.channel),
            Err(_) => return,
        };
        match event {
            Ok(Some(event)) => {
                handle(port, &event);
                handled = true;
            }
            Ok(None) => {
                // There may be a connection that was not there before.
                if handled {
                    port.hca.wake();
                }
                return;
            }
            Err(error) => {
                log::error!("rsockets: {error}");
                return;
            }
        }
    }
}

fn handle(port: &'static Port, event: &CmEvent) {
    let Some(socket) = table::by_serial(event.context) else {
        if event.event == EventType::ConnectRequest {
            refuse(port, event.id);
        }
        return;
    };
    if socket.kind == libc::SOCK_DGRAM {
        on_datagram_event(port, event, &socket);
        return;
    }
    if event.event == EventType::ConnectRequest {
        if let Err(errno) = request(port, event, &socket) {
            log::warn!("rsocket: a request was refused: {errno:?}");
            refuse(port, event.id);
        }
        return;
    }
    let is_over = {
        let mut state = lock(&socket.state);
        if state.closed || !state.ids.iter().any(|(_, id)| *id == event.id) {
            return;
        }
        match step(port, event, &socket, &mut state) {
            Ok(()) => {}
            Err(errno) => {
                log::debug!("rsocket: {}: {errno:?}", event.event);
                state.fail(errno);
            }
        }
        match state.phase {
            Phase::Open(_) => Some(true),
            Phase::Failed => Some(false),
            _ => None,
        }
    };
    socket.waiters.wake();
    if let Some(established) = is_over {
        settle_with_listener(&socket, established);
    }
}

/// An event of a datagram rsocket: it is asked for, or what it has asked for is found.
fn on_datagram_event(port: &Port, event: &CmEvent, socket: &Socket) {
    let handled = match &mut lock(&socket.state).phase {
        Phase::Datagrams(datagrams) if event.event == EventType::ConnectRequest => {
            datagrams.answer(event.id)
        }
        Phase::Datagrams(datagrams) => datagrams.on_event(event),
        _ if event.event == EventType::ConnectRequest => {
            refuse(port, event.id);
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(errno) = handled {
        log::warn!("rsocket: {}: {errno:?}", event.event);
    }
    socket.waiters.wake();
}

fn refuse(port: &Port, id: CmId) {
    if let Ok(mut manager) = port.hca.manager() {
        if let Err(error) = manager.reject(id, &[]) {
            log::debug!("{error}");
        }
        if let Err(error) = manager.destroy_id(id) {
            log::debug!("{error}");
        }
    }
}

/// The next step of an rsocket's connection.
fn step(port: &'static Port, event: &CmEvent, socket: &Socket, state: &mut State) -> Result<()> {
    let id = event.id;
    match (event.event, &mut state.phase) {
        (EventType::AddrResolved, Phase::Connecting(None)) => {
            let mut manager = port.hca.manager()?;
            match state.options.path {
                Some(path) => manager.set_option(id, IdOption::IbPath(path))?,
                None => manager.resolve_route(id, ROUTE)?,
            }
            Ok(())
        }
        (EventType::RouteResolved, Phase::Connecting(none @ None)) => {
            let mut connection = Box::new(Connection::new(port, &state.options.sizes)?);
            connection.move_to(id, QpState::Init)?;
            let hello = connection.hello();
            let param = connection.param(&hello);
            note(port.hca, connection.qpn(), id);
            port.hca.manager()?.connect(id, Some(&param))?;
            *none = Some(connection);
            Ok(())
        }
        (EventType::ConnectResponse, Phase::Connecting(Some(connection))) => {
            let met = match Hello::from_bytes(event.private_data()) {
                Some(hello) => {
                    connection.meet(hello);
                    connection.move_to(id, QpState::Rtr)
                }
                None => Err(Errno(libc::EPROTO)),
            };
            let ready = met.and_then(|()| connection.move_to(id, QpState::Rts));
            if let Err(errno) = ready {
                if let Err(error) = port.hca.manager()?.reject(id, &[]) {
                    log::debug!("{error}");
                }
                return Err(errno);
            }
            port.hca.manager()?.establish(id)?;
            open(socket, state);
            Ok(())
        }
        // The other end of a connection that was accepted is ready.
        (EventType::Established, Phase::Connecting(Some(_))) => {
            open(socket, state);
            Ok(())
        }
        (
            EventType::AddrError
            | EventType::RouteError
            | EventType::ConnectError
            | EventType::Unreachable,
            Phase::Connecting(_),
        ) => Err(match event.status {
            status @ ..=-1 => Errno(status.saturating_abs()),
            _ => Errno::ETIMEDOUT,
        }),
        (EventType::Rejected, Phase::Connecting(_)) => Err(Errno(libc::ECONNREFUSED)),
        (EventType::Disconnected, Phase::Connecting(_)) => Err(Errno(libc::ECONNRESET)),
        (EventType::Disconnected, Phase::Open(connection)) => {
            // What the other end has said before is there by now.
            connection.process();
            if connection.end == End::Open {
                connection.flush();
                connection.break_off(Errno(libc::ECONNRESET));
            }
            Ok(())
        }
        (EventType::DeviceRemoval, _) => Err(Errno::ENODEV),
        _ => Ok(()),
    }
}

/// Data may go both ways.
fn open(socket: &Socket, state: &mut State) {
    if let Phase::Connecting(connection) = &mut state.phase
        && let Some(connection) = connection.take()
    {
        socket.watch(connection.events());
        state.phase = Phase::Open(connection);
        // The second half of the ring is given away.
        state.process();
        if let Some((hca, id)) = state.ids.first()
            && let Ok(manager) = hca.manager()
        {
            state.local = local_addr(&manager, *id).ok().flatten();
            state.peer = peer_addr(&manager, *id).ok().flatten();
        }
    }
}

/// Events of the QP are the id's.
fn note(hca: &Hca, qpn: u32, id: CmId) {
    hca.registry.with(|objects| objects.cm_ids.insert(qpn, id));
}

/// A request for a listener: accepts it.
fn request(port: &'static Port, event: &CmEvent, listener: &Arc<Socket>) -> Result<()> {
    let hello = Hello::from_bytes(event.private_data()).ok_or(Errno(libc::EPROTO))?;
    let mut state = lock(&listener.state);
    let options = state.options.clone();
    let Phase::Listening(queue) = &mut state.phase else {
        return Err(Errno(libc::ECONNREFUSED));
    };
    if queue.ready.len() + queue.pending.len() >= queue.backlog {
        return Err(Errno(libc::ECONNREFUSED));
    }
    let mut connection = Box::new(Connection::new(port, &options.sizes)?);
    connection.meet(hello);
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        connection.move_to(event.id, to)?;
    }
    let child = Socket::new(listener.domain, listener.kind, options)?;
    let hello = connection.hello();
    let param = connection.param(&hello);
    note(port.hca, connection.qpn(), event.id);
    {
        let mut manager = port.hca.manager()?;
        manager.set_context(event.id, child.serial)?;
        manager.accept(event.id, Some(&param))?;
    }
    {
        let mut child = lock(&child.state);
        child.ids.push((port.hca, event.id));
        child.phase = Phase::Connecting(Some(connection));
        child.parent = Some(queue.own.clone());
    }
    queue.pending.push(child);
    Ok(())
}

/// Gives a connection that is confirmed to the program, and forgets one that is not.
fn settle_with_listener(child: &Arc<Socket>, established: bool) {
    let parent = lock(&child.state).parent.take();
    let Some(listener) = parent.and_then(|parent| parent.upgrade()) else {
        return;
    };
    {
        let mut state = lock(&listener.state);
        let Phase::Listening(queue) = &mut state.phase else {
            return;
        };
        queue.pending.retain(|other| !Arc::ptr_eq(other, child));
        if established {
            queue.ready.push_back(child.clone());
        }
    }
    listener.waiters.wake();
}
