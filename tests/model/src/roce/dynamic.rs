//! Dynamic connections (DC): an initiator (DCI) that has one target at a time, and a target (DCT) of many initiators.
//!
//! No document says what such packets look like. Two models agree between themselves: the requests and responses of RC
//! under the transport service 0b110, whose requests have a private header in front of RC's own ([`Dceth`]): access key,
//! number of the connection, its first PSN, and the initiator's QPN. So each request can open the connection that it belongs
//! to. An initiator opens a new one, with a higher number, whenever it has nothing outstanding, and closes none: a target
//! replaces the connection of an initiator by its next one, and forgets those that were used least recently.

use super::codes::Nak;
use super::env::{Counter, DcTarget, Encapsulation, Env, Path, QpConfig, QpEvent};
use super::headers::Headers;
use super::outgoing::Scratch;
use super::packet::{Dceth, Packet};
use super::psn::Psn;
use super::responder::Responder;
use super::template::Template;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Connections that a target keeps.
const MAX_CONNECTIONS: usize = 1024;

/// The connection of an initiator to its present target.
pub(super) struct Connection {
    target: DcTarget,
    stream: Option<u16>,
    template: Template,
    number: u32,
    first: Psn,
}

impl Connection {
    /// Returns `true` if a message of this stream to this target may use it. Each stream has its own connection, so that what
    /// is on its way behind a message that fails ends with it.
    pub(super) fn is_to(&self, target: &DcTarget, stream: Option<u16>) -> bool {
        self.target == *target && self.stream == stream
    }

    /// The way to the target.
    pub(super) fn path(&self) -> &Path {
        &self.target.path
    }

    pub(super) fn template(&self) -> &Template {
        &self.template
    }

    /// Where requests go, and their header.
    pub(super) fn header(&self, config: &QpConfig) -> (u32, Dceth) {
        let header = Dceth {
            key: self.target.key,
            connection: self.number,
            first: self.first.get(),
            source_qpn: config.qpn,
        };
        (self.target.number, header)
    }
}

/// Numbers and opens the connections of an initiator.
#[derive(Default)]
pub(super) struct Initiator {
    pub(super) connection: Option<Box<Connection>>,
    /// Streams in error.
    pub(super) errored: BTreeSet<u16>,
    last: u32,
}

impl Initiator {
    /// Opens the next connection. Numbers rise with time too, for those that a QP with the same number has had before.
    pub(super) fn open(
        &mut self,
        target: DcTarget,
        stream: Option<u16>,
        first: Psn,
        now: Duration,
    ) {
        let next = self.last.wrapping_add(1);
        let clock = now.as_micros() as u32;
        self.last = if older(next, clock) { clock } else { next };
        self.connection = Some(Box::new(Connection {
            target,
            stream,
            template: Template::new(&Headers::new(target.path)),
            number: self.last,
            first,
        }));
    }

    /// The state that remains when the initiator starts over.
    pub(super) fn renewed(&self) -> Initiator {
        Initiator {
            connection: None,
            errored: BTreeSet::new(),
            last: self.last,
        }
    }
}

/// Returns `true` if a connection's number comes before another one, in a circle.
fn older(number: u32, than: u32) -> bool {
    (number.wrapping_sub(than) as i32) < 0
}

/// The identity of an initiator: its address and QPN.
type Peer = ([u8; 16], u32);

struct Incoming {
    number: u32,
    responder: Responder,
    template: Template,
    /// It was answered with an error, and the rest of it is ignored.
    broken: bool,
    /// In the order of use.
    used: u64,
}

/// The connections of a target.
#[derive(Default)]
pub(super) struct Incomings {
    all: BTreeMap<Peer, Box<Incoming>>,
    /// Those with something to send.
    ready: VecDeque<Peer>,
    uses: u64,
}

impl Incomings {
    /// Takes a request.
    pub(super) fn receive(&mut self, config: &QpConfig, env: &mut dyn Env, packet: &Packet<'_>) {
        let header = packet.repr.extended.dc;
        let peer = (source(packet), header.source_qpn);
        let known = self.all.get(&peer).map(|known| known.number);
        if known.is_some_and(|known| older(header.connection, known)) {
            env.count(Counter::PacketsDropped);
            return;
        }
        if known != Some(header.connection) && !self.open(peer, header, config, packet) {
            env.count(Counter::PacketsDropped);
            return;
        }
        let Some(connection) = self.all.get_mut(&peer) else {
            return;
        };
        self.uses += 1;
        connection.used = self.uses;
        if connection.broken {
            env.count(Counter::PacketsDropped);
            return;
        }
        let config = QpConfig {
            remote_qpn: peer.1,
            ..*config
        };
        if header.key == config.dc_key {
            let result = connection.responder.on_request(&config, env, packet);
            if let Err(fault) = result {
                connection.broken = true;
                connection.responder.flush(Some(fault.local), env);
                if fault.nak == Nak::RemoteAccess {
                    env.count(Counter::RespRemoteAccessErrors);
                }
            }
        } else {
            connection.broken = true;
            connection
                .responder
                .refuse(packet.repr.bth.psn, Nak::RemoteAccess);
            env.count(Counter::RespRemoteAccessErrors);
            env.event(QpEvent::KeyViolation);
        }
        if connection.responder.has_responses() && !self.ready.contains(&peer) {
            self.ready.push_back(peer);
        }
    }

    /// Opens the connection that a request names, in place of the initiator's last one. What that one has received of a
    /// message is forgotten, and its receive WQE serves the next message.
    fn open(&mut self, peer: Peer, header: Dceth, config: &QpConfig, packet: &Packet<'_>) -> bool {
        let Some(path) = config.path else {
            return false;
        };
        if !self.all.contains_key(&peer) && self.all.len() >= MAX_CONNECTIONS {
            let idle = self
                .all
                .iter()
                .filter(|(_, it)| !it.responder.holds_recv() && !it.responder.has_responses())
                .min_by_key(|(_, it)| it.used);
            let Some(forgotten) = idle.map(|(&peer, _)| peer) else {
                return false;
            };
            self.all.remove(&forgotten);
        }
        let mut responder = Responder::new(Psn::new(header.first));
        if let Some(mut last) = self.all.remove(&peer) {
            responder.take_recv_of(&mut last.responder);
        }
        let path = back(&packet.repr.headers.path, &path);
        self.all.insert(
            peer,
            Box::new(Incoming {
                number: header.connection,
                responder,
                template: Template::new(&Headers::new(path)),
                broken: false,
                used: self.uses,
            }),
        );
        true
    }

    /// Sends answers. `true` when some are left.
    pub(super) fn run(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        budget: &mut usize,
    ) -> bool {
        while *budget > 0 {
            let Some(peer) = self.ready.pop_front() else {
                break;
            };
            let Some(connection) = self.all.get_mut(&peer) else {
                continue;
            };
            let config = QpConfig {
                remote_qpn: peer.1,
                ..*config
            };
            // A long READ of one initiator must not keep the others waiting.
            let mut share = (*budget).min(16);
            *budget -= share;
            let Incoming {
                responder,
                template,
                ..
            } = &mut **connection;
            let sent = responder.run(&config, template, env, scratch, &mut share);
            if let Err(fault) = sent {
                connection.broken = true;
                connection.responder.flush(Some(fault.local), env);
            }
            *budget += share;
            if connection.responder.has_responses() {
                self.ready.push_back(peer);
            }
        }
        !self.ready.is_empty()
    }

    /// Gives the receive WQEs of unfinished messages back; what was answered is still sent.
    pub(super) fn drain(&mut self, env: &mut dyn Env) {
        for connection in self.all.values_mut() {
            connection.responder.flush(None, env);
        }
    }
}

/// Where a packet came from.
fn source(packet: &Packet<'_>) -> [u8; 16] {
    match packet.repr.headers.path.encapsulation {
        Encapsulation::V1 { source, .. } => source,
        Encapsulation::V2Ipv4 { source, .. } => source.to_ipv6_mapped().octets(),
        Encapsulation::V2Ipv6 { source, .. } => source.octets(),
    }
}

/// The way back along the one that a packet came, with the rest as the target was told: also the priority of the VLAN.
fn back(came: &Path, own: &Path) -> Path {
    let encapsulation = match came.encapsulation {
        Encapsulation::V1 {
            source,
            destination,
        } => Encapsulation::V1 {
            source: destination,
            destination: source,
        },
        Encapsulation::V2Ipv4 {
            source,
            destination,
        } => Encapsulation::V2Ipv4 {
            source: destination,
            destination: source,
        },
        Encapsulation::V2Ipv6 {
            source,
            destination,
        } => Encapsulation::V2Ipv6 {
            source: destination,
            destination: source,
        },
    };
    Path {
        source_mac: came.destination_mac,
        destination_mac: came.source_mac,
        encapsulation,
        ..*own
    }
}
