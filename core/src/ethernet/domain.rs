//! Queues that share what the function receives: as many pairs of a send and a receive queue as the caller wants, each
//! for a thread of its own.
//!
//! The parts, in the order in which they are made; the opposite order takes them down again:
//!
//! | part | verbs | commands |
//! |---|---|---|
//! | [`EthernetDomain`] | – | ALLOC_TRANSPORT_DOMAIN |
//! | queues: [`EthernetDomain::create_queues`] | `ibv_create_wq` | CREATE_RQ, CREATE_TIS, CREATE_SQ |
//! | [`IndirectionTable`] | `ibv_create_rwq_ind_table` | CREATE_RQT, MODIFY_RQT |
//! | [`EthernetTarget`] | `ibv_create_qp_ex` with `rx_hash_conf` | CREATE_TIR, MODIFY_TIR |
//! | [`FlowCounter`] | `ibv_create_counters` | ALLOC_FLOW_COUNTER, QUERY_FLOW_COUNTER |
//! | [`FlowTable`] and its rules | `ibv_create_flow` | CREATE_FLOW_TABLE, CREATE_FLOW_GROUP, SET_FLOW_TABLE_ENTRY |
//!
//! What goes before those that refer to it is refused by the firmware, and stays with the device until that is closed.
//!
//! ```no_run
//! use bareverbs_core::{
//!     Device, EthernetInit, FlowAction, FlowMatch, FlowRuleInit, FlowSlot, HashedPackets, Platform, RssHash,
//! };
//!
//! fn spread<P: Platform>(device: &Device<'_, P>) -> Result<(), Box<dyn core::error::Error>> {
//!     let pd = device.alloc_pd()?;
//!     let domain = device.alloc_ethernet_domain()?;
//!     let init = EthernetInit::default();
//!     let queues = [domain.create_queues(&pd, &init)?, domain.create_queues(&pd, &init)?];
//!     let numbers = [queues[0].1.number(), queues[1].1.number()];
//!     let table = domain.create_indirection_table(&numbers, 128)?;
//!     let tcp = domain.create_hashed_target(&table, &RssHash::all_of(HashedPackets::TcpIpv4))?;
//!     let others = domain.create_target(numbers[0])?;
//!     let mut slots = [FlowSlot::new(); 16];
//!     let mut flows = domain.create_flow_table(&mut slots, 2)?;
//!     let mine = FlowMatch::ANY.destination(domain.mac());
//!     let to = [tcp.number()];
//!     flows.add(&FlowRuleInit::new(mine.ipv4().ip_protocol(6), FlowAction::Forward(&to)))?;
//!     let to = [others.number()];
//!     flows.add(&FlowRuleInit::new(mine, FlowAction::Forward(&to)).priority(1))?;
//!     // Each half of each queue can go to a thread now.
//!     Ok(())
//! }
//! ```

use core::fmt;

use bareverbs_firmware_cmds::numbers::{Rqn, Tirn};
use bareverbs_firmware_cmds::tir::{
    CreateRqtIn, CreateTirIn, DestroyRqtIn, ModifyRqtIn, ModifyTirIn, Tirc,
};

use crate::device::{Device, TailIn};
use crate::ethernet::counter::FlowCounter;
use crate::ethernet::error::EthernetError;
use crate::ethernet::flow_table::{FlowSlot, FlowTable};
use crate::ethernet::limits::{Limits, MultiQueueLimits};
use crate::ethernet::multi::{MultiSend, MultiSendInit};
use crate::ethernet::objects::{Kind, Object};
use crate::ethernet::offload::EthernetSendFlags;
use crate::ethernet::queue::{EthernetInit, frame_len};
use crate::ethernet::recv::EthernetReceive;
use crate::ethernet::rss::{RssError, RssHash};
use crate::ethernet::send::EthernetSend;
use crate::ethernet::strided::{StridingInit, StridingReceive};
use crate::ethernet::tunnel::to_inner;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Mac;
use crate::verbs::pd::Pd;

/// `disp_type` of a TIR that hashes.
pub(super) const INDIRECT: u8 = 1;

/// The transport domain that Ethernet queues have in common. Freed when dropped, after everything that was created from
/// it.
pub struct EthernetDomain<'d, P: Platform> {
    pub(super) domain: Object<'d, P>,
    pub(super) device: &'d Device<'d, P>,
    pub(super) limits: Limits,
    more: MultiQueueLimits,
    mac: Mac,
}

/// The two halves of a queue.
pub type EthernetHalves<'d, P> = (EthernetSend<'d, P>, EthernetReceive<'d, P>);

impl<'d, P: Platform> Device<'d, P> {
    /// Allocates what several Ethernet queues need in common.
    ///
    /// # Errors
    /// [`EthernetError`] says what the port lacks, or what the firmware refused.
    pub fn alloc_ethernet_domain(&'d self) -> Result<EthernetDomain<'d, P>, EthernetError> {
        let limits = Limits::query(self)?;
        let more = MultiQueueLimits::query(self)?;
        let mac = self.mac()?;
        if mac == [0; 6] {
            return Err(EthernetError::NoMac);
        }
        let domain = Object::transport_domain(self)?;
        Ok(EthernetDomain {
            domain,
            device: self,
            limits,
            more,
            mac,
        })
    }
}

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// The port's address, which frames should come from.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Entries of the largest indirection table; 0 on a card that cannot hash what it receives.
    #[must_use]
    pub fn max_indirection_table(&self) -> u32 {
        self.more.rqt_size()
    }

    /// Slots of the largest [flow table](Self::create_flow_table).
    #[must_use]
    pub fn max_flow_slots(&self) -> usize {
        1 << self.limits.log_table
    }

    /// Returns `true` if the card fills in checksums of what it sends, and looks at those of what it receives.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.limits.checksums.contains(EthernetSendFlags::OUTER)
    }

    /// Returns `true` if the card takes VLAN tags out of what it receives.
    #[must_use]
    pub fn has_vlan_strip(&self) -> bool {
        self.limits.vlan_strip
    }

    /// Creates a send queue and a receive queue. Nothing is received before a rule sends frames there.
    ///
    /// # Errors
    /// [`EthernetError`] says which size does not go, or what the firmware refused.
    pub fn create_queues(
        &self,
        pd: &Pd<'d, P>,
        init: &EthernetInit,
    ) -> Result<EthernetHalves<'d, P>, EthernetError> {
        let frame_len = init.longest_frame(self.device)?;
        let (limits, vector) = (&self.limits, init.comp_vector);
        let send = EthernetSend::create(
            pd,
            limits,
            &self.domain,
            init.send_frames,
            frame_len,
            vector,
        )?;
        let receive = EthernetReceive::create(pd, limits, init, frame_len)?;
        Ok((send, receive))
    }

    /// Creates a striding receive queue. Nothing is received before a rule sends frames there.
    ///
    /// # Errors
    /// [`EthernetError`] says which capability the card lacks, which size does not go, or what the firmware refused.
    pub fn create_striding_receive(
        &self,
        pd: &Pd<'d, P>,
        init: &StridingInit,
    ) -> Result<StridingReceive<'d, P>, EthernetError> {
        let frame_len = frame_len(self.device, init.frame_len)?;
        StridingReceive::create(pd, &self.limits, init, frame_len)
    }

    /// Creates a send queue of which a request has many frames.
    ///
    /// # Errors
    /// [`EthernetError`] says which capability the card lacks, which size does not go, or what the firmware refused.
    pub fn create_multi_send(
        &self,
        pd: &Pd<'d, P>,
        init: &MultiSendInit,
    ) -> Result<MultiSend<'d, P>, EthernetError> {
        let frame_len = frame_len(self.device, init.frame_len)?;
        MultiSend::create(pd, &self.limits, &self.domain, init, frame_len)
    }

    /// Creates a table of `size` entries that name `queues` in turn. A hash counts modulo its size.
    ///
    /// # Errors
    /// [`RssError`] says what the card cannot do.
    pub fn create_indirection_table(
        &self,
        queues: &[Rqn],
        size: u32,
    ) -> Result<IndirectionTable<'d, P>, RssError> {
        let most = self.more.rqt_size();
        if most == 0 {
            return Err(RssError::Unsupported);
        }
        if !size.is_power_of_two() || size > most {
            return Err(RssError::TableSize {
                asked: size,
                limit: most,
            });
        }
        let first = *queues.first().ok_or(RssError::NoQueue)?;
        let mut command = CreateRqtIn::new();
        command
            .rqt_context_mut()
            .set_rqt_max_size(size as u16)
            .set_rqt_actual_size(size as u16);
        let mut entry = |at: usize| entries(queues, first, at);
        let tail = TailIn::Qwords(size.div_ceil(2) as usize, &mut entry);
        let rqtn = self.device.execute_with(&command, tail, &mut [])?.rqtn();
        Ok(IndirectionTable {
            device: self.device,
            rqtn: Some(rqtn),
            size,
        })
    }

    /// Creates a target that sends all its frames to one queue.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn create_target(&self, queue: Rqn) -> Result<EthernetTarget<'d, P>, RssError> {
        let object = Object::tir(self.device, self.domain.number(), queue.number())?;
        Ok(EthernetTarget {
            object,
            device: self.device,
            inner: false,
        })
    }

    /// Creates a target that sends each frame to the queue that a hash of its headers finds in a table.
    ///
    /// # Errors
    /// If the hash takes fields that its packets do not have, or if the firmware refuses.
    pub fn create_hashed_target(
        &self,
        table: &IndirectionTable<'d, P>,
        hash: &RssHash,
    ) -> Result<EthernetTarget<'d, P>, RssError> {
        let mut command = CreateTirIn::new();
        let context = command.ctx_mut();
        context
            .set_disp_type(INDIRECT)
            .set_transport_domain(self.domain.number())
            .set_indirect_table(table.rqtn.unwrap_or(0));
        hash.check_table(table.size)?;
        hash.write(context)?;
        let tirn = self.device.execute(&command)?.tirn();
        Ok(EthernetTarget {
            object: Object::new(self.device, Kind::Tir, tirn),
            device: self.device,
            inner: false,
        })
    }

    /// Allocates a counter for rules (ALLOC_FLOW_COUNTER).
    ///
    /// # Errors
    /// [`EthernetError::Unsupported`] on cards without them; the firmware's refusal.
    pub fn alloc_flow_counter(&self) -> Result<FlowCounter<'d, P>, EthernetError> {
        if !self.more.counters {
            return Err(EthernetError::Unsupported {
                what: "flow counters",
            });
        }
        Ok(FlowCounter::alloc(self.device)?)
    }

    /// Creates the function's flow table, which has one at a time: rules that say which frames come to which target.
    /// Without rules, everything is dropped, or comes to the [`EthernetQueue`](super::EthernetQueue) that there is already.
    ///
    /// `slots` is room for the rules, in equal parts for `priorities` priorities. There is room for half as many rules
    /// as slots at least, and for as many as slots if all rules of a priority look at the same fields: see
    /// [`FlowTable`].
    ///
    /// # Errors
    /// [`EthernetError::Busy`] if there is a table, or a queue in front of which none can be; and the firmware's refusals.
    pub fn create_flow_table<'s>(
        &self,
        slots: &'s mut [FlowSlot],
        priorities: u8,
    ) -> Result<FlowTable<'d, 's, P>, EthernetError> {
        FlowTable::create(
            self.device,
            &self.limits,
            &self.more,
            slots,
            priorities,
            self.mac,
        )
    }

    /// Frees it, as dropping does, and returns the firmware's refusal.
    ///
    /// # Errors
    /// If the firmware refuses, most likely as there still are queues.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.domain.destroy()
    }
}

impl<P: Platform> fmt::Debug for EthernetDomain<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetDomain")
            .field("mac", &self.mac)
            .finish_non_exhaustive()
    }
}

/// Two entries of a table in one quadword: `queues` in turn.
fn entries(queues: &[Rqn], first: Rqn, at: usize) -> u64 {
    let queue = |at: usize| {
        let queue = queues.get(at % queues.len().max(1));
        u64::from(queue.copied().unwrap_or(first).number())
    };
    queue(2 * at) << 32 | queue(2 * at + 1)
}

/// A table of receive queues (RQT), which a hash is an index of. Destroyed when dropped, after the targets that use it.
pub struct IndirectionTable<'d, P: Platform> {
    device: &'d Device<'d, P>,
    /// Until the firmware was asked to destroy it.
    rqtn: Option<u32>,
    size: u32,
}

impl<P: Platform> IndirectionTable<'_, P> {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.rqtn.unwrap_or(0)
    }

    /// Entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Replaces all entries by `queues` in turn, while frames go on coming. A single frame goes by the old entries or by
    /// the new ones; frames that a queue has already stay there.
    ///
    /// # Errors
    /// If there is no queue, or if the firmware refuses; then the entries are as they were.
    pub fn set(&mut self, queues: &[Rqn]) -> Result<(), RssError> {
        let first = *queues.first().ok_or(RssError::NoQueue)?;
        let mut command = ModifyRqtIn::new();
        command.set_rqtn(self.rqtn.unwrap_or(0));
        command.bitmask_mut().set_rqn_list(true);
        command.ctx_mut().set_rqt_actual_size(self.size as u16);
        let mut entry = |at: usize| entries(queues, first, at);
        let tail = TailIn::Qwords(self.size.div_ceil(2) as usize, &mut entry);
        self.device.execute_with(&command, tail, &mut [])?;
        Ok(())
    }

    fn execute_destroy(&mut self) -> Result<(), CommandError> {
        let Some(rqtn) = self.rqtn.take() else {
            return Ok(());
        };
        let mut command = DestroyRqtIn::new();
        command.set_rqtn(rqtn);
        self.device.execute_no_output(&command)
    }

    /// Destroys it, as dropping does, and returns the firmware's refusal.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.execute_destroy()
    }
}

impl<P: Platform> Drop for IndirectionTable<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.execute_destroy() {
            log::warn!("an indirection table stays with the device: {error}");
        }
    }
}

impl<P: Platform> fmt::Debug for IndirectionTable<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndirectionTable")
            .field("rqtn", &self.rqtn)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Where rules send frames (TIR): a queue, or an indirection table with a hash. Destroyed when dropped, after the rules
/// that name it.
pub struct EthernetTarget<'d, P: Platform> {
    pub(super) object: Object<'d, P>,
    pub(super) device: &'d Device<'d, P>,
    /// The hash is one of inner headers.
    pub(super) inner: bool,
}

impl<P: Platform> EthernetTarget<'_, P> {
    /// Its number, for rules.
    #[must_use]
    pub fn number(&self) -> Tirn {
        Tirn::from_low_bits(self.object.number())
    }

    /// Replaces key, function and fields of the hash, while frames go on coming.
    ///
    /// # Errors
    /// If the hash takes fields that its packets do not have, or if the firmware refuses, as it does for a target
    /// without a hash.
    pub fn set_hash(&mut self, hash: &RssHash) -> Result<(), RssError> {
        let mut command = ModifyTirIn::new();
        command.set_tirn(self.object.number());
        command.bitmask_mut().set_hash(true);
        let mut context = Tirc::ZERO;
        hash.write(&mut context)?;
        if self.inner {
            to_inner(&mut context);
        }
        *command.ctx_mut() = context;
        self.device.execute_no_output(&command)?;
        Ok(())
    }

    /// Destroys it, as dropping does, and returns the firmware's refusal.
    ///
    /// # Errors
    /// If the firmware refuses, most likely as a rule names it.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.object.destroy()
    }
}

impl<P: Platform> fmt::Debug for EthernetTarget<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetTarget")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
