//! The device as one QP's transport sees it.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::eq::event;
use crate::objects::mkey::{Accessor, Right};
use crate::roce::env::{
    AccessError, BadWqe, Counter, Domain, Env, ErrorScope, PathMigration, QpConfig, QpEvent,
    QpState, RecvCompletion, RecvWork, RemoteRight, SendCompletion, SendWork, Syndrome,
};

/// Device and host for the time of one call into a transport.
pub(crate) struct View<'a, 'h> {
    pub(crate) device: &'a mut Device,
    pub(crate) io: &'a mut Io<'h>,
    pub(crate) qpn: u32,
}

impl View<'_, '_> {
    fn who(&self, domain: Domain) -> Result<Accessor, AccessError> {
        let qp = self.device.qps.get(self.qpn).ok_or(AccessError::Domain)?;
        let own = qp.accessor(self.qpn);
        Ok(match domain {
            Domain::Own => own,
            Domain::Xrc(srqn) => Accessor {
                pd: self.device.srqs.get(srqn).ok_or(AccessError::Domain)?.pd,
                ..own
            },
        })
    }

    /// Remote accesses never go through the reserved key.
    fn peer(&self, domain: Domain) -> Result<Accessor, AccessError> {
        Ok(Accessor {
            reserved_key: false,
            ..self.who(domain)?
        })
    }
}

impl Env for View<'_, '_> {
    fn next_send(&mut self, work: &mut SendWork) -> Result<bool, BadWqe> {
        self.device.fetch_send(self.io, self.qpn, work)
    }

    fn xrc_check(&mut self, srqn: u32) -> Result<(), AccessError> {
        let qp = self.device.qps.get(self.qpn).ok_or(AccessError::Domain)?;
        let srq = self.device.srqs.get(srqn).ok_or(AccessError::Key)?;
        if srq.xrcd == Some(qp.context.xrcd()) {
            Ok(())
        } else {
            Err(AccessError::Domain)
        }
    }

    fn next_recv(&mut self, domain: Domain, work: &mut RecvWork) -> Result<bool, BadWqe> {
        match domain {
            Domain::Own => self.device.fetch_receive(self.io, self.qpn, work),
            Domain::Xrc(srqn) => self.device.fetch_shared(self.io, srqn, work),
        }
    }

    fn recv_credits(&mut self) -> Option<u32> {
        let qp = self.device.qps.get(self.qpn)?;
        if qp.shared_queue().is_some() {
            return None;
        }
        self.device.read_receive_record(self.io, self.qpn);
        let qp = self.device.qps.get(self.qpn)?;
        Some(u32::from(qp.rq_posted.wrapping_sub(qp.rq_next)))
    }

    fn execute_local(&mut self, work: &SendWork) -> Result<(), Syndrome> {
        self.device.execute_local(self.io, self.qpn, work)
    }

    fn gather(&mut self, lkey: u32, addr: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let who = self.who(Domain::Own)?;
        self.device
            .read_key(self.io, lkey, who, addr, data, Right::LocalRead)
    }

    fn scatter(
        &mut self,
        domain: Domain,
        lkey: u32,
        addr: u64,
        data: &[u8],
    ) -> Result<(), AccessError> {
        let who = self.who(domain)?;
        self.device
            .write_key(self.io, lkey, who, addr, data, Right::LocalWrite)
    }

    fn remote_check(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        len: u32,
        right: RemoteRight,
    ) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device
            .check_key(rkey, who, addr, u64::from(len), right.into())
    }

    fn remote_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8],
    ) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device
            .read_key(self.io, rkey, who, addr, data, Right::RemoteRead)
    }

    fn remote_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8],
    ) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device
            .write_key(self.io, rkey, who, addr, data, Right::RemoteWrite)
    }

    fn atomic_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8; 8],
    ) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device
            .read_key(self.io, rkey, who, addr, data, Right::Atomic)
    }

    fn atomic_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8; 8],
    ) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device
            .write_key(self.io, rkey, who, addr, data, Right::Atomic)
    }

    fn invalidate(&mut self, domain: Domain, rkey: u32) -> Result<(), AccessError> {
        let who = self.peer(domain)?;
        self.device.invalidate_key(rkey, who)
    }

    fn complete_send(&mut self, completion: SendCompletion) {
        self.device.send_completed(self.io, self.qpn, &completion);
    }

    fn complete_recv(&mut self, completion: RecvCompletion) {
        self.device
            .receive_completed(self.io, self.qpn, &completion);
    }

    fn event(&mut self, event: QpEvent) {
        let kind = match event {
            QpEvent::TargetDrained => {
                return self.device.dct_event(self.io, self.qpn, event::DCT_DRAINED);
            }
            QpEvent::KeyViolation => return self.device.key_violated(self.io, self.qpn),
            QpEvent::CommunicationEstablished => event::COMM_EST,
            QpEvent::SendQueueDrained => event::SQ_DRAINED,
            QpEvent::InvalidRequest => event::WQ_INVAL_REQ,
            QpEvent::AccessViolation => event::WQ_ACCESS,
            QpEvent::Fatal => event::WQ_CATAS,
            QpEvent::PathMigrated => event::PATH_MIGRATED,
            QpEvent::PathMigrationFailed => event::PATH_MIGRATION_FAILED,
        };
        self.device.qp_event(self.io, self.qpn, kind);
    }

    fn enter_error(&mut self, scope: ErrorScope) {
        let Some(qp) = self.device.qps.get_mut(self.qpn) else {
            return;
        };
        let state = match scope {
            ErrorScope::SendQueue => QpState::Sqe,
            ErrorScope::Qp => QpState::Err,
        };
        if qp.state == QpState::Err {
            return;
        }
        qp.state = state;
        qp.context.set_state(qp.state_code());
        qp.last_wqe_due = state == QpState::Err && qp.shared_queue().is_some();
        // The rest of the queues is flushed behind what the transport has flushed itself.
        self.device.make_ready(self.qpn);
        self.device.drain_list(self.qpn);
    }

    fn migrate(&mut self, to: PathMigration) -> Option<QpConfig> {
        self.device.migrate(self.io, self.qpn, to);
        self.device.transport_config(self.qpn)
    }

    fn transmit(&mut self, frame: &mut Vec<u8>) {
        if !self.device.steering.rdma_sent(frame, self.qpn) {
            self.device.stats.frames_dropped += 1;
            return;
        }
        if self.device.loops_by_force(self.qpn) {
            self.device.loop_by_force(frame);
        } else {
            self.device.send_frame(self.io, frame);
        }
    }

    fn scatter_to_cqe(&mut self, data: &[u8]) {
        self.device.for_cqe.extend_from_slice(data);
    }

    fn count(&mut self, counter: Counter) {
        self.device.count(self.qpn, counter);
    }
}
