//! Raw packet QPs: whole frames through the verbs of queue pairs.
//!
//! A [`RawPacketQp`] is a send queue and a receive queue of the Ethernet kind behind the types of other queue pairs: its
//! halves are a [`SendQueue`] and a [`RecvQueue`], its work requests name memory by scatter/gather entries or carry bytes
//! inline, and its completions come in CQs that other queue pairs may use, too.
//!
//! | here | verbs |
//! |---|---|
//! | [`EthernetDomain::create_raw_packet_qp`](super::EthernetDomain::create_raw_packet_qp) | `ibv_create_qp` with `IBV_QPT_RAW_PACKET` |
//! | [`EthernetDomain::create_work_queue_by_handles`](super::EthernetDomain::create_work_queue_by_handles) | `ibv_create_wq` |
//! | [`RawPacketQp::modify`], [`query`](RawPacketQp::query) | `ibv_modify_qp`, `ibv_query_qp` |
//! | [`Batch::send_packet`](crate::qp::send::Batch::send_packet), [`SendOp::Send`](crate::SendOp::Send) | `IBV_WR_SEND` |
//! | [`SendFlags::IP_CSUM`](crate::SendFlags::IP_CSUM) | `IBV_SEND_IP_CSUM` |
//! | [`WcFlags::IP_CSUM_OK`](crate::WcFlags::IP_CSUM_OK) | `IBV_WC_IP_CSUM_OK` |
//! | [`Completion::flow_tag`](crate::cq::Completion::flow_tag) | `ibv_wc_read_flow_tag` |
//! | [`RawPacketQp::set_vlan_strip`] | `IBV_QP_CREATE_CVLAN_STRIPPING`, `IBV_WQ_FLAGS_CVLAN_STRIPPING` |
//! | [`Completion::vlan`](crate::cq::Completion::vlan) | `ibv_wc_read_cvlan` |
//! | [`FlowTable::create_flow`](super::FlowTable::create_flow) | `ibv_create_flow` |
//!
//! Underneath it is what Linux's `mlx5_ib` makes of the type (`create_raw_packet_qp`): a TIS and a send queue, a receive
//! queue and a TIR, in the transport domain that the domain has. Nothing is received before a rule names the
//! [target](RawPacketQp::target).
//!
//! # States
//!
//! Those of all queue pairs, with few attributes: the port to INIT, none from there on. The receive queue runs from INIT on,
//! the send queue from RTS on. After a failed send the QP is in SQE, which only RESET ends: the device has no command for the
//! way back to RTS. A frame that does not fit its receive costs that receive ([`WcStatus::LocLenErr`](crate::WcStatus::LocLenErr)),
//! and the queue goes on.
//!
//! ```no_run
//! use bareverbs_core::{
//!     CqInit, Device, FlowAttr, FlowSlot, FlowSpec, Platform, QpInitAttr, SendFlags, Sge,
//! };
//!
//! fn echo<P: Platform>(device: &Device<'_, P>) -> Result<(), Box<dyn core::error::Error>> {
//!     let pd = device.alloc_pd()?;
//!     let domain = device.alloc_ethernet_domain()?;
//!     let mut cq = device.create_cq(CqInit::new(64))?;
//!     let mut qp = domain.create_raw_packet_qp(&pd, &mut QpInitAttr::new(&cq, 16))?;
//!     qp.bring_to_rts()?;
//!     let mut slots = [FlowSlot::new(); 18];
//!     let mut flows = domain.create_flow_table(&mut slots, 3)?;
//!     let specs = [FlowSpec::to_mac(domain.mac())];
//!     let _flow = flows.create_flow(qp.target()?, &FlowAttr::normal(&specs))?;
//!     // post receives, poll, post sends ...
//!     Ok(())
//! }
//! ```

mod create;
mod error;
mod object;
mod states;

use core::fmt;

use bareverbs_firmware_cmds::numbers::{Qpn, Rqn, Tirn};

pub use error::RawPacketError;

use crate::device::Device;
use crate::ethernet::raw::object::RawObject;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::qp::QpState;
use crate::verbs::qp::RawPacket;
use crate::verbs::qp::caps::QpCap;
use crate::verbs::qp::recv::RecvQueue;
use crate::verbs::qp::send::SendQueue;

/// A queue pair for whole frames: see the [module](self). Destroyed when dropped, after the rules that name its target.
pub struct RawPacketQp<'d, P: Platform> {
    sq: SendQueue<'d, P, RawPacket>,
    rq: RecvQueue<'d>,
    object: RawObject<'d, P>,
}

impl<'d, P: Platform> RawPacketQp<'d, P> {
    /// Its number: the send queue's, or the receive queue's if there is no other.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.object.qpn
    }

    /// Its state as the host has recorded it: that of the last [`modify`](Self::modify), or SQE or ERR once a polled
    /// completion has reported an error.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.object.known_state()
    }

    /// What its queues hold.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.object.cap
    }

    /// Bytes of a frame's start that the device requires inline
    /// ([`send_packet_with`](crate::qp::send::Batch::send_packet_with)); mostly 0.
    #[must_use]
    pub fn min_inline(&self) -> usize {
        self.sq.packets.min_inline.into()
    }

    /// Returns `true` if the device fills in checksums.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.sq.packets.checksums
    }

    /// Where rules send frames for it.
    ///
    /// # Errors
    /// [`RawPacketError::NoReceiveQueue`] if it was created without receives, or for indirection tables only.
    pub fn target(&self) -> Result<Tirn, RawPacketError> {
        let target = self.object.tir.as_ref();
        let target = target.ok_or(RawPacketError::NoReceiveQueue)?;
        Ok(Tirn::from_low_bits(target.number()))
    }

    /// The receive queue's number, for [indirection tables](super::IndirectionTable).
    ///
    /// # Errors
    /// [`RawPacketError::NoReceiveQueue`] if it was created without receives.
    pub fn receive_number(&self) -> Result<Rqn, RawPacketError> {
        let queue = self.object.rq.as_ref();
        let queue = queue.ok_or(RawPacketError::NoReceiveQueue)?;
        Ok(Rqn::from_low_bits(queue.number()))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.object.device
    }

    /// The send half. (Swapped with another QP's it stays usable, but neither QP can be modified until it is swapped back.)
    #[inline(always)]
    pub fn send_queue(&mut self) -> &mut SendQueue<'d, P, RawPacket> {
        &mut self.sq
    }

    /// The receive half.
    #[inline(always)]
    pub fn recv_queue(&mut self) -> &mut RecvQueue<'d> {
        &mut self.rq
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut SendQueue<'d, P, RawPacket>, &mut RecvQueue<'d>) {
        (&mut self.sq, &mut self.rq)
    }

    /// Returns `true` if the queues are those that it was created with.
    fn has_own_queues(&self) -> bool {
        self.object.has_records([self.sq.record, self.rq.record])
    }

    /// Destroys it: `ibv_destroy_qp`. Completions that were not polled yet are gone with it.
    ///
    /// # Errors
    /// The firmware's first refusal, most likely as a rule names its target; what was refused stays with the device until
    /// that is closed.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.object.swapped = !self.has_own_queues();
        self.object.destroy()
    }
}

impl<P: Platform> Drop for RawPacketQp<'_, P> {
    fn drop(&mut self) {
        // The object, which goes next, destroys it, unless it is gone already.
        if !self.object.gone {
            self.object.swapped = !self.has_own_queues();
        }
    }
}

impl<P: Platform> fmt::Debug for RawPacketQp<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawPacketQp")
            .field("qpn", &self.object.qpn)
            .field("state", &self.object.state)
            .field("cap", &self.object.cap)
            .finish_non_exhaustive()
    }
}
