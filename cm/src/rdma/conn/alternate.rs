//! Alternate paths of connections (automatic path migration: IBTA volume 1, 12.8 and 17.2.8): in the request, and loaded
//! later by LAP and APR.

use core::time::Duration;

use bareverbs_core::qp::{PathMigState, QpAttr, QpAttrMask};
use bareverbs_core::{Gid, Platform, Qpn};

use crate::engine::{AlternatePath, AlternateSlot, ConnectionId, Failover, State};
use crate::mad::AprStatus;
use crate::mad::sa::PathRecord;
use crate::rdma::id::goal::{Goal, LoadedFor};
use crate::rdma::id::slot::PENDING;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::{RdmaError, errno};
use crate::rdma::types::{CmId, EventType, IdState};
use crate::sa::check_path_fields;

impl<'s, P: Platform, R: Resolver> RdmaCm<'s, '_, P, R> {
    /// Lets connections have alternate paths: one slot per connection that has one at a time. To be called before the first
    /// connection; without it what peers offer is refused, and so is [`load_alternate_path`](Self::load_alternate_path).
    ///
    /// The device's events have to be passed on ([`handle_async_event`](Self::handle_async_event)): they say when a QP has
    /// migrated, and a connection whose messages are to take the path that its data takes depends on it.
    pub fn set_alternate_slots(&mut self, slots: &'s mut [AlternateSlot]) -> Result<(), RdmaError> {
        if self.engine.set_alternate_slots(slots) {
            Ok(())
        } else {
            Err(RdmaError::Unsupported(
                "slots for alternate paths once there are connections",
            ))
        }
    }

    /// Gives a connection an alternate path, to which its QPs migrate when the path that they use fails. librdmacm has no such
    /// call; Linux's kernel has `ib_send_cm_lap`, and the alternate path of `struct ib_cm_req_param`.
    ///
    /// In `RouteResolved` the path goes out with the request of [`connect`](Self::connect), and
    /// [`alternate_path`](Self::alternate_path) says afterwards whether the other end took it. On a connection the other end
    /// is asked (LAP); what follows is `AlternatePathLoaded` or `AlternatePathError`, also on an id without a channel,
    /// whose call does not wait. Either end may ask, again after a migration as well. The other end's manager answers by
    /// itself: its QP gets the path, then APR is sent, and its application sees `AlternatePathLoaded`.
    ///
    /// The path has to begin at this port, and to differ from the one in use. The partition is the connection's.
    pub fn load_alternate_path(&mut self, id: CmId, path: &PathRecord) -> Result<(), RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        if slot.id_type.is_datagram() {
            let id_type = slot.id_type;
            let call = "load_alternate_path";
            return Err(RdmaError::WrongType { call, id_type });
        }
        if !self.hca.device.capabilities().has_alternate_paths() {
            return Err(RdmaError::Unsupported("alternate paths on this port"));
        }
        check_path_fields(path)?;
        // The option is of the primary path: `cm_format_lap` of Linux's core/cm.c derives this one.
        let ack_timeout = self.engine.ack_timeout(path.packet_life_time);
        let alternate = AlternatePath {
            local_lid: path.slid,
            remote_lid: path.dlid,
            local_gid: path.sgid,
            remote_gid: path.dgid,
            flow_label: path.flow_label,
            rate: path.rate,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            service_level: path.sl,
            subnet_local: path.hop_limit <= 1,
            ack_timeout,
        };
        self.router
            .check_alternate(&alternate)
            .map_err(|status| match status {
                AprStatus::INVALID_GID => RdmaError::NoDevice(Gid(path.sgid).to_ipv6().into()),
                status => RdmaError::AlternatePath(status),
            })?;
        let slot = &mut self.ids[index];
        let used = match slot.conn.id {
            Some(connection) => self.engine.qp_params(connection)?.address,
            None => slot.route.address,
        };
        if (used.local_lid, used.remote_lid) == (path.slid, path.dlid) {
            return Err(RdmaError::AlternatePath(AprStatus::IS_CURRENT));
        }
        match (slot.state, slot.conn.id) {
            (IdState::RouteResolved, _) => {
                slot.route.alternate = Some(alternate);
                Ok(())
            }
            (IdState::Connect, Some(connection)) => {
                let now = self.now();
                self.engine
                    .load_alternate(now, connection, &alternate, &[])?;
                self.flush(now)
            }
            (state, _) => Err(RdmaError::WrongState {
                call: "load_alternate_path",
                state,
            }),
        }
    }

    /// The alternate path that both ends of a connection agreed on, as this end sees it. After a migration there is none until
    /// one is loaded again.
    pub fn alternate_path(&self, id: CmId) -> Result<Option<AlternatePath>, RdmaError> {
        let index = self.ids.index(id)?;
        let connection = self.ids.connection(index, "alternate_path")?;
        Ok(self.engine.alternate_path(connection)?)
    }

    /// Returns the attributes that load the alternate path into the QP of an id that is to have it.
    #[cold]
    pub(crate) fn load_attr(&self, index: usize) -> Result<(QpAttr, QpAttrMask), RdmaError> {
        let connection = self.ids.connection(index, "load_alternate_path")?;
        let path = match self.ids[index].work.goal {
            Goal::Load(LoadedFor::Peer) => self.engine.alternate_asked(connection).copied(),
            _ => self.engine.alternate_path(connection)?,
        };
        // An exchange is over with its connection.
        let path = path.ok_or(RdmaError::NoQp)?;
        Ok(self.alternate_attr(index, &path))
    }

    /// Returns the attributes that load an alternate path into the QP of an id, and arm it.
    pub(crate) fn alternate_attr(
        &self,
        index: usize,
        path: &AlternatePath,
    ) -> (QpAttr, QpAttrMask) {
        let route = &self.ids[index].route;
        let attr = QpAttr {
            alt_ah_attr: self
                .router
                .ah_attr_at(&path.address(&route.address), path.rate),
            alt_pkey_index: route.pkey_index,
            alt_timeout: path.ack_timeout,
            path_mig_state: PathMigState::Rearm,
            ..QpAttr::DEFAULT
        };
        (attr, QpAttrMask::ALT_PATH | QpAttrMask::PATH_MIG_STATE)
    }

    /// Adds the alternate path that came or went with the request to the transition to RTS.
    #[cold]
    pub(crate) fn add_alternate(
        &self,
        index: usize,
        connection: ConnectionId,
        (attr, mask): &mut (QpAttr, QpAttrMask),
    ) {
        let path = self.engine.alternate_path(connection);
        if let Ok(Some(path)) = path
            && self.router.check_alternate(&path).is_ok()
        {
            let (alternate, more) = self.alternate_attr(index, &path);
            attr.alt_ah_attr = alternate.alt_ah_attr;
            attr.alt_pkey_index = alternate.alt_pkey_index;
            attr.alt_timeout = alternate.alt_timeout;
            attr.path_mig_state = alternate.path_mig_state;
            *mask |= more;
        }
    }

    /// Answer of REP about the alternate path of the request.
    #[cold]
    pub(crate) fn failover(&self, connection: ConnectionId) -> Failover {
        let path = self.engine.alternate_path(connection);
        let checked = path.map(|path| path.map(|path| self.router.check_alternate(&path)));
        match checked {
            Ok(Some(Err(AprStatus::UNSUPPORTED))) => Failover::NotSupported,
            Ok(Some(Err(_))) => Failover::Rejected,
            _ => Failover::Accepted,
        }
    }

    /// A LAP: the QP gets the path before the answer, or the answer is a refusal.
    #[cold]
    pub(crate) fn on_alternate_asked(
        &mut self,
        now: Duration,
        index: usize,
        connection: ConnectionId,
    ) {
        let slot = &self.ids[index];
        let Some(path) = self.engine.alternate_asked(connection) else {
            return;
        };
        let status = match self.router.check_alternate(path) {
            Err(status) => status,
            // The application's own QP is not the manager's to change.
            Ok(()) if !slot.objects.qp.is_made() => AprStatus::UNSUPPORTED,
            Ok(()) if slot.work.is_busy() => AprStatus::REJECTED,
            Ok(()) => {
                self.ids[index].work.goal = Goal::Load(LoadedFor::Peer);
                return self.begin_work(now, index);
            }
        };
        log::debug!("an alternate path is refused: {status}");
        self.answer_alternate(now, index, status);
    }

    fn answer_alternate(&mut self, now: Duration, index: usize, status: AprStatus) {
        let answered = self
            .ids
            .connection(index, "answer_alternate")
            .and_then(|connection| {
                Ok(self
                    .engine
                    .answer_alternate(now, connection, status, &[], &[])?)
            });
        if let Err(error) = answered {
            // The connection ended meanwhile.
            log::debug!("no answer about an alternate path: {error}");
        }
    }

    /// The answer to this end's LAP, or that none came.
    #[cold]
    pub(crate) fn on_alternate_answered(
        &mut self,
        now: Duration,
        index: usize,
        status: Option<AprStatus>,
    ) {
        let loaded = self
            .ids
            .connection(index, "load_alternate_path")
            .and_then(|connection| Ok(self.engine.alternate_path(connection)?));
        match (status, loaded) {
            (Some(AprStatus::SUCCESS), Ok(Some(_))) if self.ids[index].objects.qp.is_made() => {
                self.ids[index].work.goal = Goal::Load(LoadedFor::Application);
                self.begin_work(now, index);
            }
            (Some(AprStatus::SUCCESS), _) => {
                self.push_of_paths(index, EventType::AlternatePathLoaded, 0)
            }
            (Some(status), _) => {
                self.ids[index].events.failure = Some(RdmaError::AlternatePath(status));
                let event = EventType::AlternatePathError;
                self.push_of_paths(index, event, status.0.into());
            }
            (None, _) => {
                self.ids[index].events.failure = Some(RdmaError::TimedOut);
                self.push_of_paths(index, EventType::AlternatePathError, -errno::ETIMEDOUT);
            }
        }
    }

    /// The QP of an id has an alternate path now, or the firmware refused it.
    #[cold]
    pub(crate) fn alternate_loaded(
        &mut self,
        now: Duration,
        index: usize,
        outcome: Result<(), RdmaError>,
    ) {
        let work = &mut self.ids[index].work;
        let Goal::Load(whose) = work.goal else {
            // The connection ended meanwhile.
            return;
        };
        work.cancel();
        if whose == LoadedFor::Peer {
            let status = match outcome {
                Ok(()) => AprStatus::SUCCESS,
                Err(_) => AprStatus::REJECTED,
            };
            self.answer_alternate(now, index, status);
        }
        match outcome {
            Ok(()) => self.push_of_paths(index, EventType::AlternatePathLoaded, 0),
            Err(error) => {
                log::warn!("an alternate path could not be loaded: {error}");
                self.ids[index].events.failure = Some(error);
                self.push_of_paths(index, EventType::AlternatePathError, -error.status());
            }
        }
    }

    /// The device has moved a QP to its alternate path.
    #[cold]
    pub(crate) fn on_migrated(&mut self, qpn: Qpn) {
        let Some((index, connection)) = self.connection_of(qpn) else {
            return;
        };
        if self.engine.path_migrated(connection) == Ok(true)
            && let Ok(params) = self.engine.qp_params(connection)
        {
            self.ids[index].route.address = params.address;
            self.push_of_paths(index, EventType::PathMigrated, 0);
        }
    }

    #[cold]
    pub(crate) fn on_migration_error(&mut self, qpn: Qpn) {
        if let Some((index, connection)) = self.connection_of(qpn)
            && let Ok(Some(_)) = self.engine.alternate_path(connection)
        {
            self.push_of_paths(index, EventType::PathMigrationError, 0);
        }
    }

    fn connection_of(&self, qpn: Qpn) -> Option<(usize, ConnectionId)> {
        let index = self.ids.find_qpn(qpn)?;
        let connection = self.ids[index].conn.id?;
        let state = self.engine.state(connection);
        (state == Ok(State::Established)).then_some((index, connection))
    }

    /// These come any number of times: half of the room is left for those of the connection.
    fn push_of_paths(&mut self, index: usize, event: EventType, status: i32) {
        if self.ids[index].events.len() < PENDING / 2 {
            self.ids.push(index, event, status);
        } else {
            log::warn!("an id has too many events that are not fetched; {event} is lost");
        }
    }
}
