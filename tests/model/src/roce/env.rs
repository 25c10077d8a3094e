//! The device around the transport of one QP, and the plain types that cross that seam.
//!
//! The transport ([`Transport`](super::transport::Transport)) handles packets, PSNs and timers; it is independent of
//! WQE formats, CQE formats, doorbell records and mkey tables. The device implements [`Env`] as a view of itself *for
//! one QP*, made for the duration of a call. Contract:
//!
//! * A WQE handed out by [`Env::next_send`] or [`Env::next_recv`] is finished by exactly one [`Env::complete_send`] or
//!   [`Env::complete_recv`], in the order it was handed out, also for unsignaled WQEs and also when it is flushed. What was
//!   never handed out is the device's to flush.
//! * The device calls, on the QP's `Transport`: `configure(config, env, now)` after every state change or modify (with state
//!   `Err` or `Reset` the transport flushes or drops what it holds), `doorbell(env, now)` when sends were posted,
//!   `receive(&packet, env, now)` for every packet of the QP, `on_timer(env, now)` when `next_deadline()` has come, and
//!   after any of these `run(env, scratch, now, budget)` until it returns `false` (nothing more to transmit for now).
//!   Calling `run` once after a batch of frames is what coalesces acknowledgements.
//! * After [`Env::enter_error`] the transport asks for nothing more; it has already flushed what it held.
//! * [`Env::transmit`] must not call back into a transport: a frame for the same port goes to a queue that the device
//!   empties afterwards.
//! * Payload moves between host memory and the frame buffer directly, in [`Env::gather`], [`Env::scatter`],
//!   [`Env::remote_read`] and [`Env::remote_write`]; nothing here allocates once its buffers have grown.

use std::net::{Ipv4Addr, Ipv6Addr};

pub use super::counter::Counter;
pub use super::cqe_scatter::CqeScatter;
use super::opcode::Service;
pub use super::target::DcTarget;
use bareverbs_firmware_cmds::cqe;
pub use bareverbs_firmware_cmds::values::PathMigration;

/// Queue pair type, as far as the wire is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// The requesting end of an extended reliable connection: sends requests, takes only responses.
    XrcInitiator,
    /// The responding end of one: without queues; each request names the shared receive queue that it is for.
    XrcTarget,
    /// The initiator of dynamic connections: sends requests to one target after the other, takes only responses.
    Dci,
    /// The target of dynamic connections: takes requests of many initiators.
    Dct,
    /// Unreliable datagram.
    Ud,
    /// The general services QP: unreliable datagram, QPN 1 on the wire.
    Gsi,
    /// The subnet management QP of an InfiniBand port: unreliable datagram, QPN 0 on the wire.
    Smi,
}

impl QpKind {
    /// Returns `true` if the QP talks to one peer only, or to one at a time.
    pub fn connected(self) -> bool {
        self.reliable() || self == QpKind::Uc
    }

    /// Returns `true` if what is lost is sent again.
    pub fn reliable(self) -> bool {
        matches!(self, QpKind::Rc | QpKind::XrcInitiator | QpKind::XrcTarget) || self.dynamic()
    }

    /// Returns `true` if its peers are no attribute of the QP.
    pub fn dynamic(self) -> bool {
        matches!(self, QpKind::Dci | QpKind::Dct)
    }

    /// The transport service in the packets' opcodes.
    pub fn service(self) -> Service {
        match self {
            QpKind::Rc => Service::Rc,
            QpKind::Uc => Service::Uc,
            QpKind::XrcInitiator | QpKind::XrcTarget => Service::Xrc,
            QpKind::Dci | QpKind::Dct => Service::Dc,
            QpKind::Ud | QpKind::Gsi | QpKind::Smi => Service::Ud,
        }
    }
}

/// Queue pair state (IBTA vol. 1, 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QpState {
    /// Nothing works.
    #[default]
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives work.
    Rtr,
    /// Everything works.
    Rts,
    /// No new sends are started; those in flight complete.
    Sqd,
    /// The send queue failed (UC, UD, GSI); receives work.
    Sqe,
    /// Everything is flushed.
    Err,
}

/// The encapsulation of a path's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// RoCE v1: a GRH behind Ethertype 0x8915.
    V1 {
        /// Source GID.
        source: [u8; 16],
        /// Destination GID.
        destination: [u8; 16],
    },
    /// RoCE v2 over IPv4.
    V2Ipv4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// RoCE v2 over IPv6.
    V2Ipv6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

/// Everything in front of the BTH that does not change from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Source MAC address: the one of the GID table entry.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// VLAN tag as on the wire (priority, DEI, VLAN id), if the GID table entry has a VLAN.
    pub vlan: Option<u16>,
    /// Network addresses.
    pub encapsulation: Encapsulation,
    /// IPv4 TOS, IPv6 or GRH traffic class (DSCP and ECN bits).
    pub traffic_class: u8,
    /// IPv6 or GRH flow label, 20 bits; not used over IPv4.
    pub flow_label: u32,
    /// IPv4 TTL, IPv6 or GRH hop limit.
    pub hop_limit: u8,
    /// UDP source port of RoCE v2.
    pub udp_source_port: u16,
}

/// The path that a QP migrates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alternate {
    /// The way to the peer.
    pub path: Path,
    /// P_Key on it.
    pub pkey: u16,
}

/// The remote operations that a QP lets in (`rre`, `rwe`, `rae` of the QPC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteAccess {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// Atomics.
    pub atomic: bool,
}

/// The fields of a QPC that the transport needs. The device translates, and calls
/// [`Transport::configure`](super::transport::Transport::configure) on every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpConfig {
    /// Type.
    pub kind: QpKind,
    /// Own QP number as in the QPC (GSI and SMI: the hardware's number, not 1 or 0).
    pub qpn: u32,
    /// Source QPN in the DETH of datagrams: own number, 1 for GSI, 0 for SMI, or `deth_sqpn`.
    pub source_qpn: u32,
    /// State.
    pub state: QpState,
    /// Path MTU in bytes: 256 to 4096. Datagrams: the port's.
    pub mtu: usize,
    /// Longest message in bytes (`1 << log_msg_max`).
    pub max_message: u32,
    /// The peer (RC, UC, XRC).
    pub remote_qpn: u32,
    /// First PSN to send; taken over when the state becomes RTS coming from RTR.
    pub send_psn: u32,
    /// First PSN expected; taken over when the state becomes RTR.
    pub recv_psn: u32,
    /// Local ACK timeout code: 4.096 µs · 2^code, 0 for never.
    pub ack_timeout: u8,
    /// Retries after a lost packet, 0 to 7.
    pub retry_count: u8,
    /// Retries after RNR NAK, 0 to 6; 7 for ever.
    pub rnr_retry: u8,
    /// Timer code that own RNR NAKs carry.
    pub min_rnr_timer: u8,
    /// READs and atomics that may be outstanding as requester (`1 << log_sra_max`; 0 when the QPC allows none).
    pub max_rd_atomic: u8,
    /// READs and atomics kept as responder (`1 << log_rra_max`; 0 when the QPC allows none).
    pub max_dest_rd_atomic: u8,
    /// An acknowledgement is asked for at least every `1 << log_ack_req_freq` packets.
    pub log_ack_req_freq: u8,
    /// Remote operations let in.
    pub access: RemoteAccess,
    /// P_Key that goes out and is matched.
    pub pkey: u16,
    /// Q_Key that is matched (UD).
    pub qkey: u32,
    /// Access key that requests have to name (DCT).
    pub dc_key: u64,
    /// Streams in error with which a DCI is in error itself.
    pub errored_streams: u32,
    /// The way to the peer; meaningless for UD, GSI and DCI. DCT: what is the same for all peers. `None` before RTR.
    pub path: Option<Path>,
    /// Path migration state (IBTA vol. 1, 17.2.8); other than migrated only with an alternate path.
    pub migration: PathMigration,
    /// Where the connection goes when `path` fails, unless it is migrated.
    pub alternate: Option<Alternate>,
    /// `true` if acknowledgements carry the number of free receive WQEs (end-to-end flow control); otherwise "unlimited".
    pub advertise_credits: bool,
    /// The messages that go into their completions.
    pub cqe_scatter: CqeScatter,
    /// `true` if atomic operands lie in memory in big-endian order; the usual is the host's little-endian order.
    pub atomics_big_endian: bool,
}

/// Completion syndromes, with the values of an mlx5 error CQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// Message or buffer length wrong on this side.
    LocalLength = cqe::Syndrome::LocalLength.number(),
    /// WQE malformed, or not allowed on this QP.
    LocalQpOperation = cqe::Syndrome::LocalQpOperation.number(),
    /// Local memory access not allowed.
    LocalProtection = cqe::Syndrome::LocalProtection.number(),
    /// Flushed.
    WorkRequestFlushed = cqe::Syndrome::WrFlush.number(),
    /// Memory window bind failed.
    MemoryWindowBind = cqe::Syndrome::MwBind.number(),
    /// Invalid response packet.
    BadResponse = cqe::Syndrome::BadResponse.number(),
    /// Responder: access by the peer failed after its data had come.
    LocalAccess = cqe::Syndrome::LocalAccess.number(),
    /// The peer found the request invalid.
    RemoteInvalidRequest = cqe::Syndrome::RemoteInvalidRequest.number(),
    /// The peer refused the access.
    RemoteAccess = cqe::Syndrome::RemoteAccess.number(),
    /// The peer failed.
    RemoteOperation = cqe::Syndrome::RemoteOperation.number(),
    /// Retries exhausted.
    TransportRetryExceeded = cqe::Syndrome::TransportRetryExceeded.number(),
    /// RNR retries exhausted.
    RnrRetryExceeded = cqe::Syndrome::RnrRetryExceeded.number(),
    /// Aborted by the peer.
    RemoteAborted = cqe::Syndrome::RemoteAborted.number(),
}

/// The owner of the receive queue and of the memory that an incoming request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The QP's: its receive queue, its protection domain.
    Own,
    /// Those of the XRC shared receive queue that the request names. An XRC target has no protection domain.
    Xrc(u32),
}

/// Why a memory access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No mkey with this index, or the wrong variant, or a free one.
    #[error("no such key")]
    Key,
    /// The mkey belongs to another protection domain or to another QP.
    #[error("key of another protection domain")]
    Domain,
    /// Outside of the mkey's range.
    #[error("outside of the key's range")]
    Range,
    /// The mkey lacks the right.
    #[error("right not granted")]
    Rights,
    /// Memory that the mkey maps faulted in the IOMMU.
    #[error("IOMMU fault")]
    Fault,
}

/// The access that a remote operation requires of an rkey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteRight {
    /// Remote read.
    Read,
    /// Remote write.
    Write,
    /// Remote atomic.
    Atomic,
}

/// Atomic operation on eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// `if *va == compare { *va = swap }`
    CompareSwap {
        /// Value that must be there.
        compare: u64,
        /// Value to put.
        swap: u64,
    },
    /// `*va += add`, wrapping.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
}

/// The operation of a send WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendOp {
    /// Executed by the device at its place in the queue, nothing on the wire: NOP, UMR, local invalidate.
    #[default]
    Local,
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm(u32),
    /// SEND with invalidate of the peer's rkey.
    SendInv(u32),
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImm(u32),
    /// RDMA READ.
    Read,
    /// Atomic; operands from the WQE.
    Atomic(AtomicOp),
}

/// One piece of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// Host memory.
    Memory {
        /// Local key.
        lkey: u32,
        /// Virtual address in the mkey.
        addr: u64,
        /// Length in bytes.
        len: u32,
    },
    /// A range of [`SendWork::inline_data`].
    Inline {
        /// First byte.
        start: u32,
        /// Length in bytes.
        len: u32,
    },
}

impl Segment {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match *self {
            Segment::Memory { len, .. } | Segment::Inline { len, .. } => len,
        }
    }

    /// Returns `true` if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramAddress {
    /// Headers; the device has already looked the source up in its GID table.
    pub path: Path,
    /// Destination QPN.
    pub remote_qpn: u32,
    /// Q_Key from the WQE. With the top bit set, the QP's own is used instead (IBTA vol. 1, 10.2.5).
    pub qkey: u32,
}

/// A parsed send WQE. The transport owns these and hands them to [`Env::next_send`] to be filled again and again, so that
/// their vectors keep their capacity.
#[derive(Debug, Clone, Default)]
pub struct SendWork {
    /// Index of the WQE, as the CQE's `wqe_counter` reports it.
    pub index: u16,
    /// The mlx5 opcode of the WQE, for the CQE; opaque to the transport.
    pub wqe_opcode: u8,
    /// The operation.
    pub op: SendOp,
    /// Remote address of WRITE, READ and atomics.
    pub remote_addr: u64,
    /// Remote key of WRITE, READ and atomics.
    pub rkey: u32,
    /// Wait for earlier READs and atomics.
    pub fence: bool,
    /// Ask for a solicited event at the peer.
    pub solicited: bool,
    /// Make a CQE also on success.
    pub signaled: bool,
    /// Destination (UD, GSI).
    pub datagram: Option<DatagramAddress>,
    /// Destination (DCI), apart from the others, of which most requests have none.
    pub target: Option<Box<DcTarget>>,
    /// Its stream (DCI); `None` of what cannot be read.
    pub stream: Option<u16>,
    /// The shared receive queue at the peer (XRC).
    pub xrc_srqn: u32,
    /// The message's pieces, in order.
    pub segments: Vec<Segment>,
    /// Bytes that were in the WQE itself.
    pub inline_data: Vec<u8>,
}

impl SendWork {
    /// Empties the work, keeping its buffers.
    pub fn clear(&mut self) {
        let (mut segments, mut inline_data) = (
            std::mem::take(&mut self.segments),
            std::mem::take(&mut self.inline_data),
        );
        segments.clear();
        inline_data.clear();
        *self = SendWork {
            segments,
            inline_data,
            ..SendWork::default()
        };
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.len())).sum()
    }

    /// Returns `true` if the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A parsed receive WQE, from the RQ or the SRQ.
#[derive(Debug, Clone, Default)]
pub struct RecvWork {
    /// The `wqe_counter` of the CQE: RQ counter, or SRQ WQE index.
    pub index: u16,
    /// Scatter list ([`Segment::Memory`] only).
    pub segments: Vec<Segment>,
}

impl RecvWork {
    /// Empties the work, keeping its buffer.
    pub fn clear(&mut self) {
        self.index = 0;
        self.segments.clear();
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.len())).sum()
    }

    /// Returns `true` if the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A WQE that the device could not make sense of; it ends the QP with this syndrome. The work's `index` and `wqe_opcode`
/// must have been filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadWqe(pub Syndrome);

/// The end of a send WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCompletion {
    /// Index of the WQE.
    pub index: u16,
    /// The mlx5 opcode of the WQE.
    pub wqe_opcode: u8,
    /// `true` if success makes a CQE; failure always does.
    pub signaled: bool,
    /// Bytes that came in (READ, atomics) or went out.
    pub byte_len: u32,
    /// The result.
    pub result: Result<(), Syndrome>,
}

/// The operation that used a receive WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvOp {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm(u32),
    /// SEND with invalidate; the rkey has been invalidated.
    SendInv(u32),
    /// RDMA WRITE with immediate.
    WriteImm(u32),
}

/// The kind of header in the 40 bytes in front of a datagram (`flags_rqpn` bits 25:24 of the CQE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrhKind {
    /// A GRH (RoCE v1).
    Grh = cqe::L3Type::Grh as isize,
    /// An IPv6 header.
    Ipv6 = cqe::L3Type::Ipv6 as isize,
    /// An IPv4 header in the last 20 bytes.
    Ipv4 = cqe::L3Type::Ipv4 as isize,
}

/// A datagram's sender, as its completion reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramSource {
    /// Source QPN.
    pub qpn: u32,
    /// The kind of header in the 40 bytes.
    pub grh: GrhKind,
    /// P_Key of the packet.
    pub pkey: u16,
    /// VLAN tag of the frame.
    pub vlan: Option<u16>,
}

/// The end of a receive WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvCompletion {
    /// Index of the WQE, from [`RecvWork::index`].
    pub index: u16,
    /// The operation that used it; [`RecvOp::Send`] in errors.
    pub op: RecvOp,
    /// Bytes of the message, the 40 of the GRH area included for datagrams.
    pub byte_len: u32,
    /// `true` if the sender asked for a solicited event.
    pub solicited: bool,
    /// The sender of a datagram.
    pub source: Option<DatagramSource>,
    /// The queue that the WQE came from.
    pub domain: Domain,
    /// The result.
    pub result: Result<(), Syndrome>,
}

/// Asynchronous events of a QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEvent {
    /// A packet came in state RTR (EQE 0x02).
    CommunicationEstablished,
    /// The send queue is drained (EQE 0x03).
    SendQueueDrained,
    /// The peer sent an invalid request (EQE 0x10).
    InvalidRequest,
    /// The peer violated access rights (EQE 0x11).
    AccessViolation,
    /// The target of dynamic connections is drained (EQE 0x1c).
    TargetDrained,
    /// A request with a wrong access key came to a target (EQE 0x1d).
    KeyViolation,
    /// A local work queue failed (EQE 0x05).
    Fatal,
    /// The connection has gone over to the alternate path (EQE 0x01).
    PathMigrated,
    /// The peer has gone over to a path that is not the alternate one (EQE 0x07).
    PathMigrationFailed,
}

/// The reach of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorScope {
    /// Only the send queue: state SQE (UC, UD, GSI).
    SendQueue,
    /// The whole QP: state ERR.
    Qp,
}

/// The device, as one QP's transport sees it. See the module's contract.
pub trait Env {
    /// Fetches the next posted send WQE into `work` (which is clear). `Ok(false)` when none is posted.
    fn next_send(&mut self, work: &mut SendWork) -> Result<bool, BadWqe>;

    /// Checks whether an XRC target may take requests for this shared receive queue: that there is one, in the target's XRC
    /// domain.
    fn xrc_check(&mut self, srqn: u32) -> Result<(), AccessError>;

    /// Fetches the next receive WQE, of the RQ or the SRQ, into `work` (which is clear). `Ok(false)` when none is posted.
    fn next_recv(&mut self, domain: Domain, work: &mut RecvWork) -> Result<bool, BadWqe>;

    /// Free receive WQEs, for end-to-end flow control; `None` with an SRQ (credits are meaningless there).
    fn recv_credits(&mut self) -> Option<u32>;

    /// Executes a [`SendOp::Local`] WQE.
    fn execute_local(&mut self, work: &SendWork) -> Result<(), Syndrome>;

    /// Reads `data.len()` bytes of local memory at `addr` of `lkey`.
    fn gather(&mut self, lkey: u32, addr: u64, data: &mut [u8]) -> Result<(), AccessError>;

    /// Writes local memory (needs the local write right).
    fn scatter(
        &mut self,
        domain: Domain,
        lkey: u32,
        addr: u64,
        data: &[u8],
    ) -> Result<(), AccessError>;

    /// Checks a whole remote range, before anything of it is touched. `len` is not 0.
    fn remote_check(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        len: u32,
        right: RemoteRight,
    ) -> Result<(), AccessError>;

    /// Reads for the peer.
    fn remote_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8],
    ) -> Result<(), AccessError>;

    /// Writes for the peer.
    fn remote_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8],
    ) -> Result<(), AccessError>;

    /// Reads eight bytes for the peer, which has the atomic right.
    fn atomic_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8; 8],
    ) -> Result<(), AccessError>;

    /// Writes eight bytes for the peer, which has the atomic right.
    fn atomic_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8; 8],
    ) -> Result<(), AccessError>;

    /// Invalidates an rkey of this protection domain, for SEND with invalidate.
    fn invalidate(&mut self, domain: Domain, rkey: u32) -> Result<(), AccessError>;

    /// A send WQE has ended.
    fn complete_send(&mut self, completion: SendCompletion);

    /// A receive WQE has ended.
    fn complete_recv(&mut self, completion: RecvCompletion);

    /// An asynchronous event for the consumer.
    fn event(&mut self, event: QpEvent);

    /// The QP failed: the transport is in the error state already and has flushed what it held; the device changes the
    /// QPC's state and flushes what is still posted.
    fn enter_error(&mut self, scope: ErrorScope);

    /// The path migration state has changed; with "migrated" the paths have changed places. Returns what results.
    fn migrate(&mut self, to: PathMigration) -> Option<QpConfig>;

    /// Puts a frame on the wire (or, for the own address, into the device's loopback queue). The buffer may be another one
    /// afterwards, with whatever content.
    fn transmit(&mut self, frame: &mut Vec<u8>);

    /// Puts data into the next completion, as far as [`QpConfig::cqe_scatter`] allows it.
    fn scatter_to_cqe(&mut self, data: &[u8]);

    /// Counts.
    fn count(&mut self, counter: Counter);
}
