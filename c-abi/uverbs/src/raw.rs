//! Queues of Ethernet frames over memory of the program's: raw packet QPs, receive queues, tables of these, and QPs that hash, as
//! `mlx5_ib` makes them (drivers/infiniband/hw/mlx5/qp.c).

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::domain::AllocTransportDomainIn;
use bareverbs_node::verbs::firmware_cmds::numbers::Qpn;
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::firmware_cmds::rq::{CreateRqIn, ModifyRqIn, QueryRqIn};
use bareverbs_node::verbs::firmware_cmds::sq::{CreateSqIn, ModifySqIn, QuerySqIn};
use bareverbs_node::verbs::firmware_cmds::srq::Wq;
use bareverbs_node::verbs::firmware_cmds::tir::{CreateRqtIn, CreateTirIn, Tirc};
use bareverbs_node::verbs::firmware_cmds::tis::CreateTisIn;
use bareverbs_node::verbs::firmware_cmds::values::QueueState;
use bareverbs_node::verbs::{Device, ModifyError, QpAttrMask, QpKind, QpState, TailIn, qp};
use zerocopy::FromZeros;

use crate::abi::{ExCreateQpIn, ModifyQpIn, QueryQpOut};
use crate::attrs::{Result, refused};
use crate::devx::{HEADER, put};
use crate::doorbells::{self, Queue as Bell};
use crate::queues::{Mapped, record, ring, undone};
use crate::transition;

/// `IB_UVERBS_CREATE_QP_MASK_IND_TABLE`: of `comp_mask` of a QP.
pub(crate) const IND_TABLE: u32 = 1 << 0;
/// `wq_type`: a ring.
const CYCLIC: u8 = 1;
/// Binary logarithm of a send queue's unit.
pub(crate) const LOG_BLOCK: u32 = 6;
const RESET: u8 = QueueState::Reset.number();
const READY: u8 = QueueState::Ready.number();
const ERROR: u8 = QueueState::Error.number();
/// `enum ib_wq_state`.
const WQ_STATES: [u8; 3] = [RESET, READY, ERROR];
/// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`.
const VSD: u64 = 1 << 1;
/// `ts_format` of queues on devices that have a clock of real time only.
const DEFAULT_CLOCK: u8 = 1;

/// An object of the firmware's; destroyed when it is dropped.
pub(crate) struct Made<'d> {
    device: &'d Device<'d, P>,
    destroy: Opcode,
    uid: u16,
    pub(crate) number: u32,
    gone: bool,
}

impl<'d> Made<'d> {
    pub(crate) fn new(device: &'d Device<'d, P>, destroy: Opcode, uid: u16, number: u32) -> Self {
        Self {
            device,
            destroy,
            uid,
            number,
            gone: false,
        }
    }

    /// A transport domain: QPs of one domain do not receive each other's frames.
    pub(crate) fn domain(device: &'d Device<'d, P>, uid: u16) -> Result<Self> {
        let mut command = AllocTransportDomainIn::new();
        command.set_uid(uid);
        let made = device.execute(&command).map_err(refused)?;
        let number = made.transport_domain();
        Ok(Self::new(
            device,
            Opcode::DeallocTransportDomain,
            uid,
            number,
        ))
    }

    fn tis(device: &'d Device<'d, P>, uid: u16, domain: u32) -> Result<Self> {
        let mut command = CreateTisIn::new();
        command.set_uid(uid);
        command.ctx_mut().set_transport_domain(domain);
        let number = device.execute(&command).map_err(refused)?.tisn();
        Ok(Self::new(device, Opcode::DestroyTis, uid, number))
    }

    /// A TIR: where received frames go.
    pub(crate) fn tir(device: &'d Device<'d, P>, uid: u16, context: &Tirc) -> Result<Self> {
        let mut command = CreateTirIn::new();
        command.set_uid(uid);
        *command.ctx_mut() = *context;
        let number = device.execute(&command).map_err(refused)?.tirn();
        Ok(Self::new(device, Opcode::DestroyTir, uid, number))
    }

    /// A table of receive queues, which is as long as `numbers`.
    pub(crate) fn table(device: &'d Device<'d, P>, uid: u16, numbers: &[u32]) -> Result<Self> {
        let size = u16::try_from(numbers.len()).map_err(|_| libc::EINVAL)?;
        let mut command = CreateRqtIn::new();
        command.set_uid(uid);
        command
            .rqt_context_mut()
            .set_rqt_max_size(size)
            .set_rqt_actual_size(size);
        let entry = |at: usize| u64::from(numbers.get(at).copied().unwrap_or(0));
        let mut entries = |at: usize| entry(2 * at) << 32 | entry(2 * at + 1);
        let tail = TailIn::Qwords(numbers.len().div_ceil(2), &mut entries);
        let made = device.execute_with(&command, tail, &mut []);
        let number = made.map_err(refused)?.rqtn();
        Ok(Self::new(device, Opcode::DestroyRqt, uid, number))
    }

    /// Destroys it, if that was not done before.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        let mut command = [0; HEADER];
        let opcode = u32::from(self.destroy.number());
        put(&mut command, 0, opcode << 16 | u32::from(self.uid));
        put(&mut command, 8, self.number);
        let mut output = [0; HEADER];
        let done = self
            .device
            .execute_bytes(self.destroy, &command, &mut output);
        done.map_err(refused)?;
        self.gone = true;
        Ok(())
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // One that the firmware does not destroy stays.
        let _ = self.destroy();
    }
}

/// A queue to be: the objects that its context names, and its memory.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) uid: u16,
    pub(crate) uar: u32,
    pub(crate) pdn: u32,
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    /// Entries, and the binary logarithm of the bytes of each.
    pub(crate) count: u32,
    pub(crate) shift: u32,
}

impl Wanted {
    fn memory<'d>(&self, device: &'d Device<'d, P>) -> Result<[Mapped<'d>; 2]> {
        let most = 1 << device.capabilities().hca.log_max_wq_sz();
        if !self.count.is_power_of_two() || self.count > most || !(4..16).contains(&self.shift) {
            return Err(libc::EINVAL);
        }
        let ring = ring(device, self.ring, u64::from(self.count) << self.shift)?;
        // The field has five bits.
        if ring.offset() >= 1 << 5 {
            return Err(libc::EINVAL);
        }
        Ok([ring, record(device, self.record)?])
    }

    fn describe(&self, [ring, record]: &[Mapped<'_>; 2], wq: &mut Wq) {
        wq.set_wq_type(CYCLIC)
            .set_pd(self.pdn)
            .set_page_offset(ring.offset())
            .set_dbr_addr(record.iova())
            .set_log_wq_stride(self.shift as u8)
            .set_log_wq_sz(self.count.ilog2() as u8);
    }
}

/// A send or receive queue with its ring and record.
pub(crate) struct Queue<'d> {
    made: Made<'d>,
    memory: [Mapped<'d>; 2],
}

impl<'d> Queue<'d> {
    /// A receive queue, which leaves VLAN tags in frames unless it is to take them out.
    pub(crate) fn receive(
        device: &'d Device<'d, P>,
        wanted: &Wanted,
        strip: bool,
        scatter_fcs: bool,
    ) -> Result<Self> {
        let mut memory = wanted.memory(device)?;
        let mut create = CreateRqIn::new();
        create.set_uid(wanted.uid);
        let clock = device.capabilities().hca.rq_ts_format() == DEFAULT_CLOCK;
        let context = create.ctx_mut();
        context
            .set_vsd(!strip)
            .set_scatter_fcs(scatter_fcs)
            .set_flush_in_error_en(true)
            .set_ts_format(clock.into())
            .set_user_index(wanted.user_index & 0xff_ffff)
            .set_cqn(wanted.cqn);
        wanted.describe(&memory, context.wq_mut());
        let [ring, _] = &memory;
        let mut page = |index| ring.page(index);
        let tail = TailIn::Qwords(ring.pages(), &mut page);
        let made = device.execute_with(&create, tail, &mut []);
        let number = made.map_err(|error| undone(error, &mut memory))?.rqn();
        let made = Made::new(device, Opcode::DestroyRq, wanted.uid, number);
        Ok(Self { made, memory })
    }

    /// A send queue.
    fn send(device: &'d Device<'d, P>, wanted: &Wanted, tisn: u32) -> Result<Self> {
        let mut memory = wanted.memory(device)?;
        let word = doorbells::word(wanted.record)?;
        let mut create = CreateSqIn::new();
        create.set_uid(wanted.uid);
        let clock = device.capabilities().hca.sq_ts_format() == DEFAULT_CLOCK;
        let context = create.ctx_mut();
        context
            .set_flush_in_error_en(true)
            .set_ts_format(clock.into())
            .set_user_index(wanted.user_index & 0xff_ffff)
            .set_cqn(wanted.cqn)
            .set_tis_lst_sz(1)
            .set_tis_num_0(tisn);
        let wq = context.wq_mut();
        wanted.describe(&memory, wq);
        wq.set_uar_page(wanted.uar);
        let [ring, _] = &memory;
        let mut page = |index| ring.page(index);
        let tail = TailIn::Qwords(ring.pages(), &mut page);
        let made = device.execute_with(&create, tail, &mut []);
        let number = made.map_err(|error| undone(error, &mut memory))?.sqn();
        doorbells::add(Bell::Send(Qpn::from_low_bits(number)), wanted.uar, word);
        let made = Made::new(device, Opcode::DestroySq, wanted.uid, number);
        Ok(Self { made, memory })
    }

    pub(crate) fn number(&self) -> u32 {
        self.made.number
    }

    fn sends(&self) -> bool {
        self.made.destroy == Opcode::DestroySq
    }

    fn bell(&self) -> Bell {
        Bell::Send(Qpn::from_low_bits(self.number()))
    }

    fn state(&self) -> Result<u8> {
        let device = self.made.device;
        if self.sends() {
            let mut query = QuerySqIn::new();
            query.set_sqn(self.number());
            let found = device.execute(&query).map_err(refused)?;
            return Ok(found.sq_context().state());
        }
        let mut query = QueryRqIn::new();
        query.set_rqn(self.number());
        let found = device.execute(&query).map_err(refused)?;
        Ok(found.rq_context().state())
    }

    /// Moves it to a state. What a receive queue does with VLAN tags changes if `strip` says so.
    pub(crate) fn enter(&self, to: u8, strip: Option<bool>) -> Result<()> {
        let from = self.state()?;
        let (device, number, uid) = (self.made.device, self.number(), self.made.uid);
        if self.sends() {
            let mut modify = ModifySqIn::new();
            modify.set_uid(uid);
            modify.set_sqn(number).set_sq_state(from);
            modify.ctx_mut().set_state(to);
            if from != to {
                device.execute(&modify).map_err(refused)?;
            }
            if to == RESET {
                doorbells::reset(self.bell());
            }
            return Ok(());
        }
        let mut modify = ModifyRqIn::new();
        modify.set_uid(uid);
        modify.set_rqn(number).set_rq_state(from);
        modify.ctx_mut().set_state(to);
        if let Some(strip) = strip {
            modify.set_modify_bitmask(VSD).ctx_mut().set_vsd(!strip);
        }
        if from != to || strip.is_some() {
            device.execute(&modify).map_err(refused)?;
        }
        Ok(())
    }

    /// The state of a receive queue as `enum ib_wq_state` has it.
    pub(crate) fn verbs_state(&self) -> Result<u32> {
        let state = self.state()?;
        let known = WQ_STATES.iter().position(|known| *known == state);
        Ok(known.ok_or(libc::EIO)? as u32)
    }

    /// Moves a receive queue to a state of `enum ib_wq_state`.
    pub(crate) fn enter_verbs(&self, to: u32, strip: Option<bool>) -> Result<()> {
        let state = WQ_STATES.get(to as usize);
        self.enter(*state.ok_or(libc::EINVAL)?, strip)
    }

    pub(crate) fn destroy(&mut self) -> Result<()> {
        // Another one may have its number already.
        if self.made.gone {
            return Ok(());
        }
        self.made.destroy()?;
        if self.sends() {
            doorbells::remove(self.bell());
        }
        Ok(())
    }

    /// Its record is not looked at any more.
    fn silence(&self) {
        if self.sends() {
            doorbells::remove(self.bell());
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        if self.destroy().is_err() {
            // The device may use it for ever.
            self.silence();
            self.memory.iter_mut().for_each(Mapped::keep);
        }
    }
}

/// A raw packet QP: two queues, or none and a hash that finds those of others.
pub(crate) struct RawQp<'d> {
    // In the order in which they have to go.
    tir: Option<Made<'d>>,
    receive: Option<Queue<'d>>,
    send: Option<Queue<'d>>,
    tis: Option<Made<'d>>,
    state: QpState,
    wanted: ExCreateQpIn,
    /// Receives that its ring has room for, and the entries of each.
    receives: (u32, u32),
}

/// Destroys a part of a QP, which is not there any more then.
fn end<T>(part: &mut Option<T>, destroy: fn(&mut T) -> Result<()>) -> Result<()> {
    part.as_mut().map_or(Ok(()), destroy)?;
    *part = None;
    Ok(())
}

impl<'d> RawQp<'d> {
    /// A QP with queues. `context` says what else its TIR has.
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        domain: u32,
        (send, receive): (Option<Wanted>, Option<Wanted>),
        (strip, scatter_fcs): (bool, bool),
        mut context: Tirc,
        wanted: &ExCreateQpIn,
    ) -> Result<Self> {
        let mut raw = Self::of(None, wanted);
        if send.is_none() && receive.is_none() {
            return Err(libc::EINVAL);
        }
        if let Some(send) = send {
            let tis = raw.tis.insert(Made::tis(device, send.uid, domain)?);
            raw.send = Some(Queue::send(device, &send, tis.number)?);
        }
        if let Some(receive) = receive {
            let queue = Queue::receive(device, &receive, strip, scatter_fcs)?;
            raw.receives = (receive.count, 1 << receive.shift >> 4);
            let rqn = raw.receive.insert(queue).number();
            context.set_transport_domain(domain).set_inline_rqn(rqn);
            raw.tir = Some(Made::tir(device, receive.uid, &context)?);
        }
        Ok(raw)
    }

    /// A QP that hashes.
    pub(crate) fn of_hash(tir: Made<'d>, wanted: &ExCreateQpIn) -> Self {
        Self::of(Some(tir), wanted)
    }

    fn of(tir: Option<Made<'d>>, wanted: &ExCreateQpIn) -> Self {
        Self {
            tir,
            receive: None,
            send: None,
            tis: None,
            state: QpState::Reset,
            wanted: *wanted,
            receives: (0, 0),
        }
    }

    fn hashes(&self) -> bool {
        self.wanted.comp_mask & IND_TABLE != 0
    }

    /// The handle of its PD.
    pub(crate) fn pd(&self) -> u32 {
        self.wanted.pd_handle
    }

    /// The handle of the table in which it finds its queues, if it hashes.
    pub(crate) fn table(&self) -> Option<u32> {
        self.hashes().then_some(self.wanted.rwq_ind_tbl_handle)
    }

    /// Numbers of its TIR, TIS, receive queue and send queue, as far as they are there.
    pub(crate) fn numbers(&self) -> [Option<u32>; 4] {
        let made = |it: &Option<Made<'_>>| it.as_ref().map(|it| it.number);
        let queue = |it: &Option<Queue<'_>>| it.as_ref().map(Queue::number);
        let [tir, tis] = [made(&self.tir), made(&self.tis)];
        [tir, tis, queue(&self.receive), queue(&self.send)]
    }

    /// The number that programs know it by: its send queue's, or its receive queue's. All QPs that hash have 0.
    pub(crate) fn qpn(&self) -> u32 {
        let [.., receive, send] = self.numbers();
        send.or(receive).unwrap_or(0)
    }

    /// The state, which follows from those of the queues: `query_raw_packet_qp_state`.
    fn known_state(&mut self) -> Result<QpState> {
        let state = |queue: &Option<Queue<'_>>| queue.as_ref().map(Queue::state).transpose();
        self.state = match (state(&self.receive)?, state(&self.send)?) {
            (Some(ERROR), _) => QpState::Err,
            (Some(_), Some(ERROR)) => QpState::Sqe,
            _ => self.state,
        };
        Ok(self.state)
    }

    pub(crate) fn modify(&mut self, modify: &ModifyQpIn) -> Result<()> {
        if self.hashes() {
            return Err(libc::ENOSYS);
        }
        let mask = transition::mask(modify)?;
        let attr = transition::attributes(modify, mask, [0; 6])?;
        let from = self.known_state()?;
        let to = match mask.contains(QpAttrMask::STATE) {
            true => attr.qp_state,
            false => from,
        };
        let checked = qp::state::check(QpKind::RawPacket, from, to, mask);
        checked.map_err(|error| transition::unmodified(ModifyError::Transition(error)))?;
        if mask.contains(QpAttrMask::RATE_LIMIT) {
            return Err(libc::EOPNOTSUPP);
        }
        if mask.contains(QpAttrMask::PORT) && attr.port_num != 1 {
            return Err(libc::EINVAL);
        }
        let [receive, send] = match (from, to) {
            (QpState::Reset, QpState::Init) => [Some(READY), None],
            (QpState::Rtr, QpState::Rts) => [None, Some(READY)],
            (_, QpState::Reset) => [Some(RESET), Some(RESET)],
            (_, QpState::Err) => [Some(ERROR), Some(ERROR)],
            _ => [None, None],
        };
        for (queue, state) in [(&self.receive, receive), (&self.send, send)] {
            if let (Some(queue), Some(state)) = (queue, state) {
                queue.enter(state, None)?;
            }
        }
        self.state = to;
        Ok(())
    }

    pub(crate) fn query(&mut self) -> Result<QueryQpOut> {
        if self.hashes() {
            return Err(libc::ENOSYS);
        }
        let state = self.known_state()? as u8;
        Ok(QueryQpOut {
            qp_state: state,
            cur_qp_state: state,
            port_num: 1,
            max_send_wr: self.wanted.max_send_wr,
            // libmlx5 knows the rest, but its ring's.
            max_recv_wr: self.receives.0,
            max_send_sge: self.wanted.max_send_sge,
            max_recv_sge: self.receives.1,
            max_inline_data: self.wanted.max_inline_data,
            sq_sig_all: self.wanted.sq_sig_all,
            ..FromZeros::new_zeroed()
        })
    }

    pub(crate) fn destroy(&mut self) -> Result<()> {
        end(&mut self.tir, Made::destroy)?;
        end(&mut self.receive, Queue::destroy)?;
        end(&mut self.send, Queue::destroy)?;
        end(&mut self.tis, Made::destroy)
    }

    /// Its records are not looked at any more.
    pub(crate) fn silence(&self) {
        self.send.iter().for_each(Queue::silence);
    }
}

/// A table of receive queues, and the handles of these.
pub(crate) struct Table<'d> {
    pub(crate) made: Made<'d>,
    pub(crate) queues: Vec<u32>,
}
