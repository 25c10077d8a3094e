//! A stream on an RC QP: its queues, buffers, and what both ends have told each other.

// UNSAFETY: registers memory of the program.
#![expect(unsafe_code)]

mod sending;

use std::ffi::c_void;

use bareverbs_node::cm::rdma::{CmId, ConnParam};
use bareverbs_node::verbs::{
    Access, Buffer, Completion, Cq, CqEvents, CqInit, Mr, Mtu, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitHandles, QpState, RKey, Rc, Remote, SendData, SendFlags, SendOp, SendWr, WcStatus,
};

use crate::process::failure::{Errno, Result};
use crate::process::hca::{Hca, P};
use crate::process::pages;
use crate::rsocket::flow::{Inbound, Outbound};
use crate::rsocket::options::Sizes;
use crate::rsocket::port::Port;
use crate::rsocket::wire::{HELLO_LEN, Hello, MAPPING_LEN, Message, TARGET_LEN, TARGETS, Target};

/// Send work requests that are kept for messages without data.
const CONTROL: u32 = 4;
/// Receives beyond the credits, for such messages of the other end: they come for each half of the ring and for each half of
/// the credits, and two at the end.
const CONTROL_RECEIVES: u32 = 16;
/// Inline bytes that the QP has at least: an entry of the table of mapped buffers.
const INLINE: u32 = MAPPING_LEN as u32;

/// The kind of a send work request, in the upper half of its identifier; below it are bytes of the staging ring.
const DATA: u64 = 0;
const CONTROL_SENT: u64 = 1 << 32;
const LAST: u64 = 2 << 32;
const RECEIVE: u64 = 3 << 32;

/// The state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It works.
    Open,
    /// Both ends know that it is over.
    Closed,
    /// It broke.
    Broken(Errno),
}

/// A buffer of the program for the other end's `riowrite`, or for its own.
struct Mapped {
    /// The entry of the other end's table; `None` if it is for this end only.
    index: Option<u16>,
    offset: u64,
    addr: usize,
    length: usize,
    region: Mr<'static, P>,
    /// The other end was told.
    told: bool,
}

impl Mapped {
    /// Returns `true` if the other end is still to be told.
    fn waits(&self) -> bool {
        self.index.is_some() && !self.told
    }
}

/// A stream. The QP goes before what it uses.
pub(super) struct Connection {
    pub(super) hca: &'static Hca,
    qp: Qp<'static, P, Rc>,
    cq: Cq<'static, P>,
    /// The receive ring.
    ring: Buffer<'static, P>,
    /// Bytes that wait for their WRITEs.
    staging: Buffer<'static, P>,
    /// The list of targets, and the table of mapped buffers behind it: the other end writes here.
    table: Buffer<'static, P>,
    mappings: u16,
    /// Buffers that are mapped; those that the other end was told of stand in the order of telling.
    mapped: Vec<Mapped>,
    outbound: Outbound,
    pub(super) inbound: Inbound,
    inline: u32,
    peer: Option<Hello>,
    /// The entry of the other end's list of targets that is next.
    peer_entry: u32,
    /// Work requests without data that are posted.
    control: u32,
    pub(super) end: End,
    /// This end sends, and receives, no more data.
    pub(super) shut_write: bool,
    pub(super) shut_read: bool,
    /// The other end sends no more.
    pub(super) peer_shut: bool,
    /// The message that this end sends no more is posted: it is the last one, or one before.
    said_end: bool,
    /// The last message is posted.
    said_last: bool,
    credits: u16,
    /// The longest packet, once the QP is connected.
    pub(super) path_mtu: Mtu,
}

impl Connection {
    /// Queues and buffers on a device, with the receives posted as soon as the QP is in INIT.
    pub(super) fn new(port: &'static Port, sizes: &Sizes) -> Result<Self> {
        let device = port.hca.device;
        let (sends, credits) = (u32::from(sizes.sends), u32::from(sizes.receives));
        let receives = credits + CONTROL_RECEIVES;
        let cq = device.create_cq(CqInit::new(sends + receives))?;
        let inline = u32::from(sizes.inline);
        let mut init = QpInitHandles {
            send_cq: cq.handle(),
            recv_cq: cq.handle(),
            srq: None,
            cap: QpCap {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline.max(INLINE),
            },
            sq_sig_all: true,
        };
        let qp = port.pd.create_qp_by_handles(&mut init)?;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let ring = port.pd.alloc_buffer(sizes.receive_ring as usize, written)?;
        let staging = port
            .pd
            .alloc_buffer(sizes.staging as usize, Access::empty())?;
        let table = TARGETS * TARGET_LEN + usize::from(sizes.mappings) * MAPPING_LEN;
        let table = port.pd.alloc_buffer(table, written)?;
        table.fill(0, table.len(), 0).map_err(|_| Errno::EIO)?;
        Ok(Self {
            hca: port.hca,
            qp,
            cq,
            ring,
            staging,
            table,
            mappings: sizes.mappings,
            mapped: Vec::new(),
            outbound: Outbound::new(sizes.staging, sends - CONTROL),
            inbound: Inbound::new(sizes.receive_ring, sizes.receives),
            inline,
            peer: None,
            peer_entry: 1,
            control: 0,
            end: End::Open,
            shut_write: false,
            shut_read: false,
            peer_shut: false,
            said_end: false,
            said_last: false,
            credits: sizes.receives,
            path_mtu: QpAttr::DEFAULT.path_mtu,
        })
    }

    /// The QP's number.
    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn().number()
    }

    /// The events of its CQ.
    pub(super) fn events(&self) -> CqEvents<'static> {
        self.cq.events()
    }

    /// This end's private data.
    pub(super) fn hello(&self) -> [u8; HELLO_LEN] {
        let hello = Hello {
            credits: self.credits,
            swap: false,
            mappings: self.mappings,
            targets: Target {
                addr: self.table.addr(),
                key: self.table.rkey().0,
                length: TARGETS as u32,
            },
            first: Target {
                addr: self.ring.addr(),
                key: self.ring.rkey().0,
                length: self.ring.len() as u32 / 2,
            },
        };
        hello.to_bytes()
    }

    /// Takes the other end's greeting.
    pub(super) fn meet(&mut self, peer: Hello) {
        self.outbound.begin(peer.credits, peer.first);
        self.peer = Some(peer);
        self.peer_entry = 1 % peer.targets.length;
    }

    /// The parameters of the connection, without READs and atomics.
    pub(super) fn param<'a>(&self, private_data: &'a [u8]) -> ConnParam<'a> {
        ConnParam {
            private_data,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: self.qpn(),
        }
    }

    /// Moves the QP for an id of the connection manager.
    pub(super) fn move_to(&mut self, id: CmId, state: QpState) -> Result<()> {
        let (mut attr, mask) = self.hca.manager()?.init_qp_attr(id, state)?;
        attr.max_dest_rd_atomic = 0;
        attr.max_rd_atomic = 0;
        if state == QpState::Init {
            attr.qp_access_flags = Access::REMOTE_WRITE;
        }
        self.qp.modify(&attr, mask)?;
        if state == QpState::Rtr {
            self.path_mtu = attr.path_mtu;
        }
        if state == QpState::Init {
            let mut batch = self.qp.recv_queue().batch();
            for _ in 0..u32::from(self.credits) + CONTROL_RECEIVES {
                batch.post(RECEIVE, &[])?;
            }
        }
        Ok(())
    }

    /// Moves the QP to ERR, so that its posted work requests complete with flush errors.
    pub(super) fn flush(&mut self) {
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        if let Err(error) = self.qp.modify(&attr, QpAttrMask::STATE) {
            log::debug!("to ERR: {error}");
        }
    }

    /// Asks for an event at the next completion. What came before has to be looked for afterwards.
    pub(super) fn arm(&mut self) {
        self.cq.arm(false);
    }

    /// Takes completions, and says to the other end what is to be said.
    pub(super) fn process(&mut self) {
        let mut receives = 0;
        let polled = self.take_completions(&mut receives);
        let posted = polled.and_then(|()| {
            let mut batch = self.qp.recv_queue().batch();
            for _ in 0..receives {
                batch.post(RECEIVE, &[])?;
            }
            Ok(())
        });
        let told = posted.and_then(|()| self.tell());
        if let Err(errno) = told {
            self.break_off(errno);
        }
        // Not before the other end has all that was sent, and has heard that no more comes.
        if self.end == End::Open && self.said_end && self.peer_shut && self.is_quiet() {
            self.end = End::Closed;
        }
    }

    fn take_completions(&mut self, receives: &mut u32) -> Result<()> {
        loop {
            let Some(found) = self.cq.poll()?.map(|found| Found::new(&found)) else {
                return Ok(());
            };
            if found.wr_id == RECEIVE {
                if let (WcStatus::Success, Some(immediate)) = (found.status, found.immediate) {
                    *receives += 1;
                    self.on_message(Message::from_immediate(immediate))?;
                } else if self.end == End::Open && !self.said_last {
                    // The QP was moved to ERR, or a WRITE had no immediate data where it needs one.
                    return Err(Errno(libc::ECONNRESET));
                }
                continue;
            }
            match found.wr_id & !u64::from(u32::MAX) {
                DATA => self.outbound.done(found.wr_id as u32),
                CONTROL_SENT => self.control -= 1,
                _ => {
                    self.control -= 1;
                    if self.end == End::Open {
                        self.end = End::Closed;
                    }
                }
            }
            if found.status != WcStatus::Success {
                self.break_off(errno(found.status));
            }
        }
    }

    fn on_message(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Data(length) => {
                if let Err(violation) = self.inbound.arrived(length) {
                    log::warn!("rsocket: the other end sends {length} bytes: {violation:?}");
                    return Err(Errno(libc::EPROTO));
                }
            }
            Message::Credits(limit) => {
                self.outbound.extend(limit);
                for index in 0..TARGETS {
                    self.read_target(index)?;
                }
            }
            Message::Mapping(_) => self.inbound.message_read(),
            Message::Disconnect => {
                self.peer_shut = true;
                if self.end == End::Open {
                    self.end = End::Closed;
                }
            }
            Message::Shutdown => self.peer_shut = true,
            Message::Other(immediate) => log::debug!("rsocket: message {immediate:#x}"),
        }
        Ok(())
    }

    /// Takes over what the other end has written into the list of targets.
    fn read_target(&mut self, index: usize) -> Result<()> {
        if !self.outbound.wants_target(index) {
            return Ok(());
        }
        let at = index * TARGET_LEN;
        let (length_at, outside) = (at + TARGET_LEN - 4, |_| Errno::EIO);
        // The length first: it is written last.
        let mut length = [0; 4];
        self.table
            .copy_out(length_at, &mut length)
            .map_err(outside)?;
        if length == [0; 4] {
            return Ok(());
        }
        let mut bytes = [0; TARGET_LEN];
        self.table.copy_out(at, &mut bytes).map_err(outside)?;
        self.table.fill(length_at, 4, 0).map_err(outside)?;
        self.outbound.set_target(index, Target::from_bytes(&bytes));
        Ok(())
    }

    /// Gives credits and halves of the ring back, and sends what has waited for credits.
    fn tell(&mut self) -> Result<()> {
        self.send_waiting()?;
        while self.end == End::Open
            && !self.said_last
            && self.inbound.wants_update()
            && self.control < CONTROL
        {
            let Some(peer) = self.peer else { return Ok(()) };
            let update = self.inbound.update();
            let message = Message::Credits(update.limit);
            match update.half {
                None => self.post_message(message, CONTROL_SENT)?,
                Some((offset, length)) => {
                    let at = self.ring.remote(offset as usize);
                    let target = Target {
                        addr: at.addr,
                        key: at.rkey.0,
                        length,
                    };
                    let to = Remote {
                        addr: peer.target_at(self.peer_entry),
                        rkey: RKey(peer.targets.key),
                    };
                    self.peer_entry = (self.peer_entry + 1) % peer.targets.length;
                    let bytes = target.to_bytes(peer.swap);
                    let op = SendOp::WriteImm(to, message.to_immediate());
                    self.post(CONTROL_SENT, op, SendData::Inline(&bytes))?;
                    self.control += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns true if something is to be told as soon as a message that is under way has arrived, or to be sent as soon as
    /// there are credits.
    pub(super) fn has_untold(&self) -> bool {
        let untold = !self.said_last && self.inbound.wants_update();
        self.end == End::Open && (untold || self.outbound.is_waiting())
    }

    fn post_message(&mut self, message: Message, wr_id: u64) -> Result<()> {
        let op = SendOp::WriteImm(self.anywhere(), message.to_immediate());
        self.post(wr_id, op, SendData::Sges(&[]))?;
        self.control += 1;
        Ok(())
    }

    /// Where WRITEs of no bytes go.
    fn anywhere(&self) -> Remote {
        let peer = self.peer.map(|peer| peer.targets).unwrap_or_default();
        Remote {
            addr: peer.addr,
            rkey: RKey(peer.key),
        }
    }

    fn post(&mut self, wr_id: u64, op: SendOp<'_>, data: SendData<'_>) -> Result<()> {
        let flags = SendFlags::SIGNALED;
        let request = SendWr {
            wr_id,
            op,
            flags,
            data,
        };
        Ok(self.qp.send_queue().post(&request)?)
    }

    /// The connection is over, by an error if it was open.
    pub(super) fn break_off(&mut self, errno: Errno) {
        if self.end == End::Open {
            log::debug!("rsocket: {errno:?}");
            // What follows an orderly end is of no interest.
            self.end = if self.said_end && self.peer_shut {
                End::Closed
            } else {
                End::Broken(errno)
            };
        }
    }

    /// Returns `true` if the program can send.
    pub(super) fn is_writable(&self) -> bool {
        self.end == End::Open && !self.shut_write
    }

    /// The error of a call that sends when the program cannot. `is_ordinary` is for an rsocket that stands for an ordinary
    /// socket.
    pub(super) fn send_error(&self, is_ordinary: bool) -> Errno {
        match self.end {
            End::Broken(errno) => errno,
            // The other end has closed, without waiting for this.
            End::Closed if !self.shut_write && !is_ordinary => Errno(libc::ECONNRESET),
            End::Open | End::Closed => Errno(libc::EPIPE),
        }
    }

    /// Returns `true` if both ends have said that they send no more.
    pub(super) fn is_over(&self) -> bool {
        self.shut_write && self.peer_shut
    }

    /// Returns `true` if more data may come than there is.
    pub(super) fn is_readable(&self) -> bool {
        self.end == End::Open && !self.shut_read && !self.peer_shut
    }

    /// Returns `true` if data can be sent at once.
    pub(super) fn can_send(&self) -> bool {
        self.is_writable() && self.outbound.can_send()
    }

    /// Copies bytes that have come, `skip` bytes further on; how many. They stay until they are consumed.
    pub(super) fn copy_out(&self, to: &mut [u8], skip: usize) -> Result<usize> {
        let mut copied = 0;
        while copied < to.len() {
            let Some((at, length)) = self.inbound.next(skip + copied) else {
                break;
            };
            let length = length.min(to.len() - copied);
            let piece = &mut to[copied..copied + length];
            self.ring.copy_out(at, piece).map_err(|_| Errno::EIO)?;
            copied += length;
        }
        Ok(copied)
    }

    /// So many bytes were read.
    pub(super) fn consume(&mut self, length: usize) {
        self.inbound.consume(length);
        if let Err(errno) = self.tell() {
            self.break_off(errno);
        }
    }

    /// Says that this end sends no more, or has closed. `false` if messages that are under way have to arrive before, or bytes
    /// wait for credits.
    pub(super) fn say_end(&mut self, message: Message) -> Result<bool> {
        if self.end != End::Open || self.said_last {
            return Ok(true);
        }
        if self.control >= CONTROL || self.outbound.is_waiting() {
            return Ok(false);
        }
        // What the other end has said may have come since the message was chosen.
        let last = message == Message::Disconnect || self.peer_shut;
        let (message, wr_id) = match last {
            true => (Message::Disconnect, LAST),
            false => (message, CONTROL_SENT),
        };
        self.post_message(message, wr_id)?;
        (self.said_end, self.said_last) = (true, last);
        Ok(true)
    }

    /// Returns `true` if everything that was posted is done, or cannot be done any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.end != End::Open || self.control == 0 && self.outbound.is_idle()
    }

    /// Asks for a sign of life: the transport answers a WRITE of no bytes, or the QP breaks off.
    pub(super) fn probe(&mut self) {
        if self.end == End::Open && self.control == 0 && self.peer.is_some() {
            let op = SendOp::Write(self.anywhere());
            match self.post(CONTROL_SENT, op, SendData::Sges(&[])) {
                Ok(()) => self.control += 1,
                Err(errno) => self.break_off(errno),
            }
        }
    }

    /// Maps a buffer of the program; its offset.
    ///
    /// # Errors
    /// ENOMEM if the other end has room for no more, before all else; EINVAL for an empty buffer.
    ///
    /// # Safety
    /// The memory stays until it is unmapped or the connection is gone, and the device may change it.
    pub(super) unsafe fn map(
        &mut self,
        buf: *mut c_void,
        length: usize,
        remote: bool,
        offset: Option<u64>,
    ) -> Result<u64> {
        let index = if remote {
            let most = self.peer.map_or(0, |peer| peer.mappings);
            let is_free = |index: &u16| self.mapped.iter().all(|other| other.index != Some(*index));
            Some((0..most).find(is_free).ok_or(Errno::ENOMEM)?)
        } else {
            None
        };
        let mut access = Access::LOCAL_WRITE;
        if remote {
            access |= Access::REMOTE_WRITE;
        }
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let buffer = pages::region(buf, length)?;
        pages::check(buffer, true)?;
        // SAFETY: the caller promises that the memory stays until it is unmapped or the connection is gone, and the device may
        // change it.
        let region = unsafe { super::port::port(self.hca)?.pd.reg_mr(buffer, access) }?;
        let addr = buf as usize;
        let offset = offset.unwrap_or(addr as u64);
        self.mapped.push(Mapped {
            index,
            offset,
            addr,
            length,
            region,
            told: false,
        });
        Ok(offset)
    }

    /// Unmaps a buffer: the first one of those that the other end was told of or that are for this end only, or else of the
    /// others. The other end is not told.
    pub(super) fn unmap(&mut self, addr: usize, length: usize) -> Result<()> {
        let is = |mapped: &Mapped| mapped.addr == addr && mapped.length == length;
        let first = |waits: bool| {
            let mut all = self.mapped.iter();
            all.position(|mapped| is(mapped) && mapped.waits() == waits)
        };
        let at = first(false).or_else(|| first(true)).ok_or(Errno::EINVAL)?;
        let mut mapped = self.mapped.remove(at);
        if let Err((kept, error)) = mapped.region.dereg() {
            mapped.region = kept;
            self.mapped.insert(at, mapped);
            return Err(crate::process::failure::Errno::from(
                bareverbs_node::verbs::MrError::Command(error),
            ));
        }
        Ok(())
    }
}

/// The fields of interest in a completion.
struct Found {
    wr_id: u64,
    status: WcStatus,
    immediate: Option<u32>,
}

impl Found {
    fn new(completion: &Completion<'_>) -> Self {
        Self {
            wr_id: completion.wr_id(),
            status: completion.status(),
            immediate: completion.imm_data(),
        }
    }
}

/// The errno for a send that failed.
fn errno(status: WcStatus) -> Errno {
    match status {
        WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr => Errno::ETIMEDOUT,
        _ => Errno(libc::ECONNRESET),
    }
}
