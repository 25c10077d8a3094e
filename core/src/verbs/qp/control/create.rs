//! Creating a QP: its memory, its slot, and CREATE_QP with a context that names them.

// UNSAFETY: says which parts of the block are the slot's.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::task::Waker;

use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::numbers::{Pdn, Qpn, Xrcdn};
use bareverbs_firmware_cmds::qp::{CreateQpIn, CreateQpOut};
use bareverbs_firmware_cmds::values::{PathMigration, RqType, TimestampFormat};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::dma_buffer::DmaBuffer;
use crate::device::in_flight::{InFlight, SlotClass};
use crate::device::xrc_objects::{NO_USER_INDEX, XrcNumbers};
use crate::device::{Device, TailIn};
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::memory::slots::{NONE, QpArrays, QpSlot};
use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use crate::types::qp::{QpKind, QpState};
use crate::types::sge::Access;
use crate::types::streams::DciStreams;
use crate::verbs::cq::{CqHandle, count_user};
use crate::verbs::qp::control::init_attr::CreateQpError;
use crate::verbs::qp::control::object::{QpObject, UnderWay};
use crate::verbs::qp::queue::block::BlockLayout;
use crate::verbs::qp::queue::sizes::{QpCap, QueueSizes, queue_sizes};
use crate::verbs::srq::SrqHandle;

/// Which messages go into their completions, what streams an initiator has, and the source of datagrams, if it is not the QP;
/// as the context has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Codes {
    pub(crate) cs_res: u8,
    pub(crate) cs_req: u8,
    pub(crate) streams: DciStreams,
    pub(crate) deth_sqpn: u8,
}

impl Codes {
    pub(crate) const NONE: Self = Self {
        cs_res: 0,
        cs_req: 0,
        streams: DciStreams::ONE,
        deth_sqpn: 0,
    };
}

/// What a QP is made of.
pub(crate) struct CreateQpArgs<'a, 'd, P: Platform> {
    pub(crate) kind: QpKind,
    pub(crate) device: &'d Device<'d, P>,
    /// The base's, without one.
    pub(crate) pdn: Option<Pdn>,
    /// Of an XRC target.
    pub(crate) xrcdn: Option<Xrcdn>,
    pub(crate) send_cq: Option<&'a CqHandle<'d, P>>,
    pub(crate) recv_cq: Option<&'a CqHandle<'d, P>>,
    pub(crate) srq: Option<&'a SrqHandle<'d, P>>,
    pub(crate) cap: &'a mut QpCap,
    pub(crate) sq_sig_all: bool,
    pub(crate) scatter: Codes,
}

impl<P: Platform> CreateQpArgs<'_, '_, P> {
    pub(in crate::verbs::qp) fn check(&self) -> Result<(), CreateQpError> {
        let same = |other: &Device<'_, P>| core::ptr::addr_eq(self.device, other);
        let cqs = [self.send_cq, self.recv_cq];
        if !cqs.iter().flatten().all(|cq| same(cq.device))
            || !self.srq.is_none_or(|srq| same(srq.device))
        {
            return Err(CreateQpError::OtherDevice);
        }
        if let Some(srq) = self.srq {
            if !matches!(
                self.kind,
                QpKind::Rc | QpKind::Uc | QpKind::Ud | QpKind::Dct
            ) {
                return Err(CreateQpError::NoSrq { kind: self.kind });
            }
            if srq.xrc {
                return Err(CreateQpError::XrcSrq);
            }
        }
        let caps = self.device.capabilities();
        if caps.hca.cqe_version() == 0 {
            return Err(CreateQpError::NoUserIndex);
        }
        let xrc = matches!(self.kind, QpKind::XrcSend | QpKind::XrcRecv);
        if xrc && !caps.has_xrc() {
            return Err(CreateQpError::NoXrc);
        }
        if matches!(self.kind, QpKind::Dci | QpKind::Dct) && !caps.hca.dct() {
            return Err(CreateQpError::NoDc);
        }
        Ok(())
    }
}

/// A QP that is being created, whatever its type.
pub(crate) struct CreatingObject<'d, P: Platform> {
    pub(in crate::verbs::qp) device: &'d Device<'d, P>,
    class: SlotClass,
    flight: InFlight,
    /// The parts of the QP, until it is over.
    parts: Option<Parts<'d, P>>,
}

/// What a QP is made of, all of it there.
pub(in crate::verbs::qp) struct Parts<'d, P: Platform> {
    kind: QpKind,
    sizes: QueueSizes,
    block: DmaBuffer<'d, P>,
    index: u32,
    /// The base of XRC.
    base: Option<XrcNumbers>,
    pdn: Pdn,
    xrcdn: Option<Xrcdn>,
    /// Send and receive. Their handles keep them from being destroyed meanwhile.
    cqs: [Option<CqHandle<'d, P>>; 2],
    srq: Option<SrqHandle<'d, P>>,
    sq_sig_all: bool,
    scatter: Codes,
}

impl<'d, P: Platform> CreatingObject<'d, P> {
    /// Begins to create a QP. (The first one of XRC waits for what the contexts of all of them name.)
    pub(crate) fn start(
        class: SlotClass,
        args: CreateQpArgs<'_, 'd, P>,
    ) -> Result<Self, CreateQpError> {
        args.check()?;
        let device = args.device;
        if args.kind == QpKind::Gsi && device.gsi_taken.swap(true, AcqRel) {
            return Err(CreateQpError::GsiTaken);
        }
        let base = match args.kind.is_xrc() {
            true => Some(device.acquire_xrc_base()?),
            false => None,
        };
        let kind = args.kind;
        let mut begun = match Parts::new(args, base) {
            Ok(parts) => Self {
                device,
                class,
                flight: InFlight::Idle,
                parts: Some(parts),
            },
            Err(error) => {
                release_singles(device, kind);
                return Err(error);
            }
        };
        begun.post()?;
        Ok(begun)
    }

    fn post(&mut self) -> Result<(), CreateQpError> {
        let Some(parts) = &self.parts else {
            return Ok(());
        };
        let layout = BlockLayout::new(&parts.sizes);
        let pages = parts.pages(&layout);
        let command = parts.command(self.device, &layout, &pages);
        // A target has no memory.
        let count = match parts.kind {
            QpKind::XrcRecv => 0,
            _ => pages.len(),
        };
        let mut list = |i: usize| pages.page(i);
        let begun = self.device.begin(
            &mut self.flight,
            self.class,
            CreateQpIn::OPCODE,
            command.as_bytes(),
            TailIn::Qwords(count, &mut list),
            size_of::<CreateQpOut>(),
        );
        begun.map_err(|error| self.fail(error))
    }

    pub(in crate::verbs::qp) fn is_posted(&self) -> bool {
        self.flight.is_posted()
    }

    pub(in crate::verbs::qp) fn try_finish(
        &mut self,
        waker: Option<&Waker>,
    ) -> Option<Result<QpObject<'d, P>, CreateQpError>> {
        self.parts.as_ref()?;
        if !self.is_posted()
            && let Err(error) = self.post()
        {
            return Some(Err(error));
        }
        let mut out = CreateQpOut::new_zeroed();
        let answer = self
            .device
            .look(&self.flight, out.as_mut_bytes(), &mut [], waker)?;
        Some(match answer {
            Ok(()) => {
                let parts = self.parts.take()?;
                Ok(parts.into_object(self.device, Qpn::from_low_bits(out.qpn())))
            }
            Err(error) => Err(self.fail(error)),
        })
    }

    /// There will be no QP.
    fn fail(&mut self, error: CommandError) -> CreateQpError {
        self.discard(error.may_still_happen());
        CreateQpError::Command(error)
    }

    /// Frees what the QP was to be made of. `used`: the device may still use the memory.
    fn discard(&mut self, used: bool) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        let kind = parts.kind;
        parts.discard(self.device, used);
        release_singles(self.device, kind);
    }
}

/// Releases what a kind of QPs has once.
pub(in crate::verbs::qp) fn release_singles<P: Platform>(device: &Device<'_, P>, kind: QpKind) {
    if kind == QpKind::Gsi {
        device.gsi_taken.store(false, Release);
    }
    if kind.is_xrc() {
        device.release_xrc_base();
    }
}

impl<P: Platform> Drop for CreatingObject<'_, P> {
    fn drop(&mut self) {
        if self.parts.is_some() && self.is_posted() {
            let device = self.device;
            // The QP, if there is one, is destroyed right away.
            drop(device.until(|| self.try_finish(None)));
        }
        self.discard(false);
    }
}

impl<'d, P: Platform> Parts<'d, P> {
    pub(in crate::verbs::qp) fn new(
        args: CreateQpArgs<'_, 'd, P>,
        base: Option<XrcNumbers>,
    ) -> Result<Self, CreateQpError> {
        let device = args.device;
        let mut limits = device.queue_limits();
        if args.kind == QpKind::Dci {
            let longest = device.capabilities().hca.max_wqe_sz_sq_dc();
            limits.max_send_wqe = limits.max_send_wqe.min(longest.into());
        }
        let sizes = queue_sizes(
            args.kind,
            args.cap,
            args.srq.is_some() || args.kind.is_xrc() || args.kind == QpKind::Dci,
            &limits,
        )
        .map_err(CreateQpError::Cap)?;
        let layout = BlockLayout::new(&sizes);
        let memory_layout = Layout::from_size_align(layout.len, QpSlot::BLOCK_ALIGN)
            .map_err(|_| CreateQpError::Memory(DmaError::OutOfMemory))?;
        let block = device
            .alloc_dma(memory_layout)
            .map_err(CreateQpError::Memory)?;
        layout.reset_wqe_heads(&block);
        let Some(index) = device.tables.alloc_qp() else {
            return Err(CreateQpError::NoSlot {
                limit: device.tables.qps.len(),
            });
        };
        *args.cap = sizes.cap;
        let unnamed = Pdn::from_low_bits(base.map_or(0, |base| base.pdn));
        Ok(Self {
            kind: args.kind,
            sizes,
            block,
            index,
            base,
            pdn: args.pdn.unwrap_or(unnamed),
            xrcdn: args.xrcdn,
            cqs: [args.send_cq, args.recv_cq].map(Option::<&CqHandle<'d, P>>::cloned),
            srq: args.srq.cloned(),
            sq_sig_all: args.sq_sig_all,
            scatter: args.scatter,
        })
    }

    /// The parts of a QP whose queues are not the driver's: only the block of none.
    #[cfg(feature = "foreign-qps")]
    pub(in crate::verbs::qp) fn foreign(
        device: &'d Device<'d, P>,
        kind: QpKind,
        base: Option<XrcNumbers>,
        pdn: Pdn,
    ) -> Result<Self, CreateQpError> {
        let none = QueueSizes::default();
        let len = BlockLayout::new(&none).len;
        let layout = Layout::from_size_align(len, QpSlot::BLOCK_ALIGN)
            .map_err(|_| CreateQpError::Memory(DmaError::OutOfMemory))?;
        let block = device.alloc_dma(layout).map_err(CreateQpError::Memory)?;
        let index = device.tables.alloc_qp();
        let limit = device.tables.qps.len();
        Ok(Self {
            kind,
            sizes: none,
            block,
            index: index.ok_or(CreateQpError::NoSlot { limit })?,
            base,
            pdn,
            xrcdn: None,
            cqs: [None, None],
            srq: None,
            sq_sig_all: false,
            scatter: Codes::NONE,
        })
    }

    fn pages(&self, layout: &BlockLayout) -> RingPages {
        RingPages::new(self.block.iova(), layout.rings.max(64), PageOffset::SixBits)
    }

    /// Index of its slot.
    pub(in crate::verbs::qp) fn index(&self) -> u32 {
        self.index
    }

    /// Frees it where it is of no use. `used`: the device may still use the memory.
    pub(in crate::verbs::qp) fn discard(self, device: &Device<'_, P>, used: bool) {
        device.tables.free_qp(self.index);
        if used {
            self.block.quarantine();
        }
    }

    /// The QP, which the device has now.
    pub(in crate::verbs::qp) fn into_object(
        self,
        device: &'d Device<'d, P>,
        qpn: Qpn,
    ) -> QpObject<'d, P> {
        let Self { sizes, block, .. } = self;
        let layout = BlockLayout::new(&sizes);
        let slot = &device.tables.qps[self.index as usize];
        let srq = self.srq.as_ref().map(|srq| srq.index);
        slot.srq.store(srq.unwrap_or(NONE), Relaxed);
        let arrays = QpArrays {
            heads: block.part(layout.sq_heads),
            blocks: sizes.sq_blocks.max(1),
            send_ids: block.part(layout.sq_wr_ids),
            sends: layout.wr_entries as u32,
            recv_ids: block.part(layout.rq_wr_ids),
            recvs: sizes.rq_entries.max(1),
        };
        // SAFETY: the arrays lie in the block as `BlockLayout` divides it. The object keeps the block until it is dropped,
        // and then moves it to the slot, which frees it when the QP is detached from its last CQ.
        unsafe { slot.publish(arrays) };
        for (side, cq) in self.cqs.iter().enumerate() {
            // Release: a poller that finds its CQ here finds the arrays, too.
            slot.cqs[side].store(cq.as_ref().map_or(NONE, |cq| cq.index), Release);
            if let Some(cq) = cq {
                count_user(cq.slot);
            }
        }
        if let Some(srq) = &self.srq {
            srq.slot.users.fetch_add(1, AcqRel);
            srq.slot.pins.fetch_add(1, AcqRel);
        }
        slot.qpn_tag.store(qpn.number(), Release);
        QpObject {
            kind: self.kind,
            device,
            slot,
            #[cfg(feature = "foreign-qps")]
            record: block.iova() + layout.record as u64,
            block: block.into_memory(),
            queues_swapped: false,
            index: self.index,
            qpn,
            pdn: self.pdn,
            sizes,
            state: QpState::Reset,
            sq_sig_all: self.sq_sig_all,
            outlives_errors: self.scatter.streams.log_errored != 0,
            cqns: [&self.cqs[0], &self.cqs[1]]
                .map(|cq| cq.as_ref().map_or(0, |cq| cq.cqn.number())),
            port: 1,
            access: Access::empty(),
            responder_depth: 0,
            srq,
            sgid: None,
            groups: 0,
            under_way: UnderWay::None,
        }
    }

    /// The command, whose context names everything that the QP uses.
    fn command(
        &self,
        device: &Device<'_, P>,
        layout: &BlockLayout,
        pages: &RingPages,
    ) -> CreateQpIn {
        let unused = self.base.map_or(0, |base| base.cqn);
        let [send_cqn, recv_cqn] =
            [&self.cqs[0], &self.cqs[1]].map(|cq| cq.as_ref().map_or(unused, |cq| cq.cqn.number()));
        let mut command = CreateQpIn::new();
        let qpc = command.qpc_mut();
        qpc.set_st(self.kind.service())
            .set_pm_state(PathMigration::Migrated.number())
            .set_pd(self.pdn.number())
            .set_cqn_snd(send_cqn)
            .set_cqn_rcv(recv_cqn)
            .set_cs_res(self.scatter.cs_res)
            .set_cs_req(self.scatter.cs_req)
            .set_log_num_dci_stream_channels(self.scatter.streams.log_concurrent)
            .set_log_num_dci_errored_streams(self.scatter.streams.log_errored)
            .set_deth_sqpn(self.scatter.deth_sqpn.into());
        // Time stamps free running, unless the device has only the kind that it calls default.
        let caps = device.capabilities();
        if caps.roce.is_some_and(|roce| roce.qp_ts_format() == 1) {
            qpc.set_ts_format(TimestampFormat::Default.number());
        }
        if let Some(base) = self.base {
            let xrcdn = self.xrcdn.map_or(base.xrcdn, |xrcdn| xrcdn.number());
            qpc.set_xrcd(xrcdn)
                .set_rq_type(RqType::Srq.number())
                .set_srqn_rmpn_xrqn(base.srqn);
        }
        if self.kind == QpKind::XrcRecv {
            // Its completions are the SRQs'.
            qpc.set_no_sq(true).set_user_index(NO_USER_INDEX);
            return command;
        }
        qpc.set_uar_page(device.qp_uar().number())
            .set_user_index(self.index)
            .set_log_page_size(pages.log_page_size())
            .set_page_offset(pages.page_offset())
            .set_dbr_addr(self.block.iova() + layout.record as u64);
        match self.sizes.sq_blocks.checked_ilog2() {
            Some(log) => qpc.set_log_sq_size(log as u8),
            None => qpc.set_no_sq(true),
        };
        match (&self.srq, self.sizes.rq_entries.checked_ilog2()) {
            _ if self.kind.is_xrc() => qpc,
            (Some(srq), _) => qpc
                .set_rq_type(RqType::Srq.number())
                .set_srqn_rmpn_xrqn(srq.srqn.number()),
            (None, Some(log)) => qpc
                .set_log_rq_size(log as u8)
                .set_log_rq_stride((self.sizes.rq_stride.ilog2() - 4) as u8),
            (None, None) => qpc.set_rq_type(RqType::ZeroSize.number()),
        };
        command
    }
}
