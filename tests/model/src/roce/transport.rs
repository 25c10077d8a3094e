//! The transport of one QP: what the device calls.

use std::time::Duration;

pub use super::outgoing::{GSI_QKEY, GSI_QPN, MULTICAST_QPN, SMI_QPN, Scratch};

use super::codes::Nak;
use super::datagram::Datagram;
use super::dynamic::Incomings;
use super::env::{
    Counter, Encapsulation, Env, ErrorScope, Path, PathMigration, QpConfig, QpEvent, QpKind,
    QpState, Syndrome,
};
use super::headers::Headers;
use super::memory::Fault;
use super::opcode::Opcode;
use super::packet::Packet;
use super::psn::Psn;
use super::requester::Requester;
use super::responder::Responder;
use super::template::Template;
use crate::port::lid::lid;

/// One QP's transport. See the module [`env`](super::env) for who calls what.
pub struct Transport {
    config: QpConfig,
    /// The headers in front of its packets.
    template: Option<Template>,
    requester: Requester,
    responder: Responder,
    datagram: Datagram,
    /// DCT: who is connected to it.
    incomings: Option<Box<Incomings>>,
    /// `true` if "communication established", "send queue drained" or "target drained" was reported in the present state.
    reported: bool,
}

impl Transport {
    /// The transport of a QP in the state of `config`; usually Reset.
    pub fn new(config: QpConfig) -> Transport {
        Transport {
            config,
            template: template(&config),
            requester: Requester::new(Psn::new(config.send_psn)),
            responder: Responder::new(Psn::new(config.recv_psn)),
            datagram: Datagram::new(Psn::new(config.send_psn)),
            incomings: (config.kind == QpKind::Dct).then(Box::default),
            reported: false,
        }
    }

    /// Returns `true` if a target that was to be drained is.
    pub fn drained(&self) -> bool {
        self.config.kind == QpKind::Dct && self.config.state == QpState::Sqd && self.reported
    }

    /// The configuration, with the state that the transport is in.
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// PSN of the next new request.
    pub fn next_send_psn(&self) -> u32 {
        if self.config.kind.connected() {
            self.requester.next_psn().get()
        } else {
            self.datagram.next_psn().get()
        }
    }

    /// Oldest request PSN that is not acknowledged yet, minus one (`last_acked_psn` of the QPC).
    pub fn last_acked_psn(&self) -> u32 {
        self.requester.unacknowledged().minus(1).get()
    }

    /// PSN expected next (`next_rcv_psn`).
    pub fn next_recv_psn(&self) -> u32 {
        self.responder.expected().get()
    }

    /// Requests executed so far (`rmsn`), 24 bits.
    pub fn msn(&self) -> u32 {
        self.responder.msn()
    }

    /// Takes a changed configuration over. What a state change means: Reset drops everything silently, Err flushes what
    /// the transport holds, RTR starts the responder, RTR to RTS starts the requester.
    pub fn configure(&mut self, config: QpConfig, env: &mut dyn Env, now: Duration) {
        let old = std::mem::replace(&mut self.config, config);
        if old.state != config.state {
            self.reported = false;
        }
        if old.path != config.path {
            self.template = template(&config);
        }
        match config.state {
            QpState::Reset => {
                let requester = self.requester.renewed(Psn::new(config.send_psn));
                *self = Transport {
                    requester,
                    ..Transport::new(config)
                };
            }
            QpState::Err if old.state != QpState::Err => {
                self.requester.flush(None, env);
                self.responder.flush(None, env);
                self.responder.drop_responses();
            }
            QpState::Rtr if old.state != QpState::Rtr => {
                self.responder = Responder::new(Psn::new(config.recv_psn));
            }
            QpState::Rts if matches!(old.state, QpState::Rtr | QpState::Init) => {
                self.requester = self.requester.renewed(Psn::new(config.send_psn));
                self.datagram = Datagram::new(Psn::new(config.send_psn));
                self.requester.reload_retries(&self.config);
            }
            QpState::Rts => {
                self.requester.reload_retries(&self.config);
                // The driver had it migrate.
                if old.migration == PathMigration::Armed
                    && config.migration == PathMigration::Migrated
                {
                    self.requester.change_path(&self.config, now);
                }
            }
            QpState::Sqd if config.kind == QpKind::Dct && old.state != QpState::Sqd => {
                if let Some(incomings) = &mut self.incomings {
                    incomings.drain(env);
                }
            }
            _ => {}
        }
        self.requester.rearm(&self.config, now);
    }

    /// Sends up to `budget` frames. `true` when it stopped only for that: call again.
    pub fn run(
        &mut self,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        now: Duration,
        budget: usize,
    ) -> bool {
        if let Some(incomings) = &mut self.incomings {
            let mut left = budget;
            let more = incomings.run(&self.config, env, scratch, &mut left);
            if self.config.state == QpState::Sqd && !more && !self.reported {
                self.reported = true;
                env.event(QpEvent::TargetDrained);
            }
            return more;
        }
        // A long READ must not starve the own requests, nor the other way round.
        let mut share = budget.div_ceil(2);
        let mut left = budget - share;
        self.run_responder(env, scratch, &mut share);
        left += share;
        if matches!(self.config.state, QpState::Rts | QpState::Sqd) {
            let result = if self.config.kind.connected() {
                let template = self.template.as_ref();
                self.requester
                    .run(&self.config, template, env, scratch, now, &mut left)
            } else {
                self.datagram.run(&self.config, env, scratch, &mut left)
            };
            if let Err(syndrome) = result
                && self.fail_requester(syndrome, env)
            {
                return true;
            }
        }
        self.run_responder(env, scratch, &mut left);
        if self.config.state == QpState::Sqd && !self.reported && self.requester.is_empty() {
            self.reported = true;
            env.event(QpEvent::SendQueueDrained);
        }
        left == 0 || (self.responder.has_responses() && self.config.path.is_some())
    }

    fn run_responder(&mut self, env: &mut dyn Env, scratch: &mut Scratch, budget: &mut usize) {
        let Some(template) = &self.template else {
            return;
        };
        let sent = self
            .responder
            .run(&self.config, template, env, scratch, budget);
        if let Err(fault) = sent {
            self.fail_responder(fault, env);
        }
    }

    /// Takes a packet that the device found to be for this QP. Answers wait for [`Transport::run`].
    pub fn receive(&mut self, packet: &Packet<'_>, env: &mut dyn Env, now: Duration) {
        if packet.congestion_experienced() {
            env.count(Counter::EcnMarked);
        }
        if packet.repr.bth.opcode == Opcode::CNP {
            env.count(Counter::CnpHandled);
            return;
        }
        if !self.belongs(packet) {
            env.count(Counter::PacketsDropped);
            if self.config.migration == PathMigration::Armed && packet.repr.bth.migration {
                self.refuse_migration(packet, env);
            }
            return;
        }
        env.count(Counter::PacketsReceived);
        match (self.config.migration, packet.repr.bth.migration) {
            // The peer is to be armed as well, or is already.
            (PathMigration::Rearm, false) => self.enter_migration(PathMigration::Armed, env),
            (PathMigration::Armed, true) => self.migrate(env, now),
            _ => {}
        }
        if let Some(incomings) = &mut self.incomings {
            incomings.receive(&self.config, env, packet);
            return;
        }
        if self.config.state == QpState::Rtr && !self.reported {
            self.reported = true;
            env.event(QpEvent::CommunicationEstablished);
        }
        let outcome = match self.config.kind {
            kind if kind.reliable() && packet.repr.bth.opcode.operation.is_response() => {
                let result = self.requester.on_response(&self.config, env, packet, now);
                if let Err(syndrome) = result {
                    self.migrate_or_fail(syndrome, env, now);
                }
                return;
            }
            QpKind::Rc | QpKind::XrcTarget => self.responder.on_request(&self.config, env, packet),
            // Only their responses belong to initiators, and a target's requests to its connections.
            QpKind::XrcInitiator | QpKind::Dci | QpKind::Dct => Ok(()),
            QpKind::Uc => self.responder.on_unreliable(&self.config, env, packet),
            QpKind::Ud | QpKind::Gsi | QpKind::Smi => {
                self.datagram.receive(&self.config, env, packet)
            }
        };
        if let Err(fault) = outcome {
            self.fail_responder(fault, env);
        }
    }

    /// To be called at the time that [`Transport::next_deadline`] returned.
    pub fn on_timer(&mut self, env: &mut dyn Env, now: Duration) {
        if !matches!(self.config.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        if let Err(syndrome) = self.requester.on_timer(&self.config, env, now) {
            self.migrate_or_fail(syndrome, env, now);
        }
    }

    /// When to call [`Transport::on_timer`].
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.config.state {
            QpState::Rts | QpState::Sqd => self.requester.next_deadline(),
            _ => None,
        }
    }

    /// Returns `true` if a packet fits the QP's type, state, P_Key and peer.
    fn belongs(&self, packet: &Packet<'_>) -> bool {
        let config = &self.config;
        let bth = &packet.repr.bth;
        let direction = match config.kind {
            QpKind::XrcInitiator | QpKind::Dci => bth.opcode.operation.is_response(),
            QpKind::XrcTarget | QpKind::Dct => !bth.opcode.operation.is_response(),
            _ => true,
        };
        let state = match config.state {
            // A target that is draining.
            QpState::Sqd => config.kind != QpKind::Dct,
            QpState::Rts => true,
            QpState::Rtr | QpState::Sqe => !bth.opcode.operation.is_response(),
            QpState::Reset | QpState::Init | QpState::Err => false,
        };
        let qpn = bth.destination_qpn;
        let qpn_fits = match config.kind {
            kind if kind.connected() => qpn == config.qpn,
            QpKind::Ud => qpn == config.qpn || qpn == MULTICAST_QPN,
            QpKind::Gsi => qpn == GSI_QPN,
            QpKind::Smi => qpn == SMI_QPN,
            _ => false,
        };
        let path = match config.kind {
            QpKind::Dci => self
                .requester
                .initiator
                .connection
                .as_ref()
                .map(|it| it.path()),
            _ => config.path.as_ref(),
        };
        let migrates = config.migration == PathMigration::Armed && bth.migration;
        let (path, pkey) = match &config.alternate {
            Some(alternate) if migrates => (Some(&alternate.path), alternate.pkey),
            _ => (path, config.pkey),
        };
        // The port has seen to the partitions of its management's QPs, which are members of all.
        let management = matches!(config.kind, QpKind::Gsi | QpKind::Smi);
        bth.opcode.service == config.kind.service()
            && direction
            && state
            && qpn_fits
            && (management || pkey_matches(bth.pkey, pkey))
            && (!config.kind.connected()
                || config.kind == QpKind::Dct
                || path.is_some_and(|path| {
                    let packet = &packet.repr.headers.path;
                    is_peer(packet, path) && (!migrates || same_lids(packet, path))
                }))
    }

    /// The path has failed: the connection goes over to the alternate one, or ends.
    fn migrate_or_fail(&mut self, syndrome: Syndrome, env: &mut dyn Env, now: Duration) {
        let lost = syndrome == Syndrome::TransportRetryExceeded;
        if lost && self.config.migration == PathMigration::Armed {
            self.migrate(env, now);
        } else {
            self.fail_requester(syndrome, env);
        }
    }

    /// Goes over to the alternate path, and asks there again for what has no answer.
    fn migrate(&mut self, env: &mut dyn Env, now: Duration) {
        self.enter_migration(PathMigration::Migrated, env);
        self.requester.change_path(&self.config, now);
        env.event(QpEvent::PathMigrated);
    }

    fn enter_migration(&mut self, to: PathMigration, env: &mut dyn Env) {
        if let Some(config) = env.migrate(to) {
            if config.path != self.config.path {
                self.template = template(&config);
            }
            self.config = config;
        }
    }

    /// The peer says that it has migrated, on a path that is not the alternate one.
    fn refuse_migration(&self, packet: &Packet<'_>, env: &mut dyn Env) {
        let config = &self.config;
        let bth = &packet.repr.bth;
        let for_it = bth.destination_qpn == config.qpn
            && bth.opcode.service == config.kind.service()
            && matches!(config.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        if for_it {
            env.event(QpEvent::PathMigrationFailed);
        }
    }

    /// Returns `true` if only a stream has failed, and others go on.
    fn fail_requester(&mut self, syndrome: Syndrome, env: &mut dyn Env) -> bool {
        if self.requester.fail_stream(&self.config, syndrome, env) {
            return true;
        }
        if self.config.kind.reliable() {
            self.config.state = QpState::Err;
            self.requester.flush(Some(syndrome), env);
            self.responder.flush(None, env);
            env.enter_error(ErrorScope::Qp);
        } else {
            self.config.state = QpState::Sqe;
            self.requester.flush(Some(syndrome), env);
            env.enter_error(ErrorScope::SendQueue);
        }
        false
    }

    /// Ends the error of a stream of an initiator. `false` if it is not in error.
    pub fn reset_stream(&mut self, stream: u16) -> bool {
        self.requester.reset_stream(stream)
    }

    fn fail_responder(&mut self, fault: Fault, env: &mut dyn Env) {
        if self.config.state == QpState::Err {
            // An earlier request whose answer was still to come: nothing is left to fail.
            return;
        }
        self.config.state = QpState::Err;
        self.responder.flush(Some(fault.local), env);
        self.requester.flush(None, env);
        match fault.nak {
            Nak::InvalidRequest if fault.local == Syndrome::RemoteInvalidRequest => {
                env.event(QpEvent::InvalidRequest);
            }
            Nak::RemoteAccess => {
                env.count(Counter::RespRemoteAccessErrors);
                env.event(QpEvent::AccessViolation);
            }
            _ => {}
        }
        env.enter_error(ErrorScope::Qp);
    }
}

fn template(config: &QpConfig) -> Option<Template> {
    // Each of a target's connections has its own.
    let path = config.path.filter(|_| !config.kind.dynamic());
    path.map(|path| Template::new(&Headers::new(path)))
}

/// Two P_Keys match when their low 15 bits are the same and not zero, and at least one side is a full member.
pub(crate) fn pkey_matches(a: u16, b: u16) -> bool {
    a & 0x7fff == b & 0x7fff && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}

/// Returns `true` if a packet on an InfiniBand port came from and to the local identifiers of `path`: with a global header
/// two paths differ in nothing else.
fn same_lids(packet: &Path, path: &Path) -> bool {
    let number = |mac| lid(mac).map(|(number, _)| number);
    number(packet.source_mac) == number(path.destination_mac)
        && number(packet.destination_mac) == number(path.source_mac)
}

/// Returns `true` if a packet came over `path`, the other way round. MAC addresses and UDP ports do not identify a peer.
fn is_peer(packet: &Path, path: &Path) -> bool {
    match (packet.encapsulation, path.encapsulation) {
        (
            Encapsulation::V1 {
                source,
                destination,
            },
            Encapsulation::V1 {
                source: own,
                destination: peer,
            },
        ) => source == peer && destination == own,
        (
            Encapsulation::V2Ipv4 {
                source,
                destination,
            },
            Encapsulation::V2Ipv4 {
                source: own,
                destination: peer,
            },
        ) => source == peer && destination == own,
        (
            Encapsulation::V2Ipv6 {
                source,
                destination,
            },
            Encapsulation::V2Ipv6 {
                source: own,
                destination: peer,
            },
        ) => source == peer && destination == own,
        _ => false,
    }
}
