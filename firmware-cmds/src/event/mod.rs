//! Events: what an entry of an event queue says.
//!
//! An entry belongs to the consumer when its owner bit equals the parity of the consumer's pass over the queue
//! ([`owner_of_pass`]). A new queue is filled with entries whose owner bit is 1, which is the parity of the second pass.

mod sensors;

pub use sensors::Sensors;

use crate::eq::{CqError, Eqe, QpEvents};
use crate::layout::{layout, part, part_mut};
use crate::numbered::numbered;
use crate::numbers::{Cqn, Qpn, Srqn};
use crate::pages::PagesReqEvent;
use crate::word::words;
use core::fmt;
use zerocopy::transmute_ref;

/// Size of an event queue entry.
pub const EQE_SIZE: usize = 64;

words! {
    /// The last byte of an entry, which the device writes last.
    pub struct EqeOwner(u8): "eqe" @ 0x3f {
        /// Owner bit.
        u8 owner, set_owner: 0, 0;
    }
}

impl EqeOwner {
    /// That of an entry that the device has not written: the owner bit of the second pass.
    pub const INIT: Self = Self(1);
}

/// The owner bit that entries get on the pass to which `counter` (a free running producer or consumer counter) belongs.
/// The same rule holds for CQEs.
#[must_use]
#[inline]
pub const fn owner_of_pass(counter: u32, log_size: u8) -> u8 {
    (counter >> log_size & 1) as u8
}

layout! {
    /// Event data of a completion event.
    pub struct CompEvent: "comp_event", 0x1c {
        bits cq_number, set_cq_number: u32 @ 0x18 [23:0];
    }
}

layout! {
    /// Event data of completed commands.
    pub struct CmdInterCompEvent: "cmd_inter_comp_event", 0x1c {
        bits command_completion_vector, set_command_completion_vector: u32 @ 0x00 [31:0];
    }
}

layout! {
    /// Event data of a port change.
    pub struct PortStateChangeEvent: "port_state_change_event", 0x1c {
        bits port_num, set_port_num: u8 @ 0x08 [31:28];
    }
}

layout! {
    /// Event data of DCT events.
    pub struct DctEvents: "dct_events", 0x1c {
        bits dct_number, set_dct_number: u32 @ 0x18 [23:0];
    }
}

numbered! {
    /// Type of an event.
    pub enum EventType: u8, code {
        /// Completion in an armed CQ.
        Completion = 0x00, "COMP";
        /// A path has migrated.
        PathMigrated = 0x01, "PATH_MIG";
        /// The first packet on a QP in RTR.
        CommunicationEstablished = 0x02, "COMM_EST";
        /// The send queue has drained.
        SqDrained = 0x03, "SQ_DRAINED";
        /// CQ overrun or access violation.
        CqError = 0x04, "CQ_ERROR";
        /// Catastrophic error of a work queue.
        WqCatastrophic = 0x05, "WQ_CATAS_ERROR";
        /// Path migration failed.
        PathMigrationFailed = 0x07, "PATH_MIG_FAILED";
        /// The device failed internally.
        InternalError = 0x08, "INTERNAL_ERROR";
        /// The port changed.
        PortChange = 0x09, "PORT_CHANGE";
        /// Commands completed.
        Command = 0x0a, "CMD";
        /// The firmware requests pages, or returns some.
        PageRequest = 0x0b, "PAGE_REQUEST";
        /// On-demand paging fault.
        PageFault = 0x0c, "PAGE_FAULT";
        /// NIC vport context changed.
        NicVportChange = 0x0d, "NIC_VPORT_CHANGE";
        /// Embedded functions changed.
        EswFunctionsChanged = 0x0e, "ESW_FUNCTIONS_CHANGED";
        /// vHCA state changed.
        VhcaStateChange = 0x0f, "VHCA_STATE_CHANGE";
        /// Invalid request on a work queue.
        WqInvalidRequest = 0x10, "WQ_INVAL_REQ_ERROR";
        /// Local access violation of a work queue.
        WqAccessError = 0x11, "WQ_ACCESS_ERROR";
        /// Catastrophic error of an SRQ.
        SrqCatastrophic = 0x12, "SRQ_CATAS_ERROR";
        /// A QP in error state has taken its last entry of an SRQ.
        SrqLastWqe = 0x13, "SRQ_LAST_WQE";
        /// An SRQ fell below its limit.
        SrqLimit = 0x14, "SRQ_RQ_LIMIT";
        /// GPIO.
        Gpio = 0x15, "GPIO_EVENT";
        /// Cable or module.
        PortModule = 0x16, "PORT_MODULE_EVENT";
        /// Temperature warning.
        TemperatureWarning = 0x17, "TEMP_WARN_EVENT";
        /// Error of an XRQ.
        XrqError = 0x18, "XRQ_ERROR";
        /// Remote configuration.
        RemoteConfig = 0x19, "REMOTE_CONFIG";
        /// Doorbell congestion.
        DoorbellCongestion = 0x1a, "DB_BF_CONGESTION";
        /// A virtual lane stalls.
        Stall = 0x1b, "STALL_EVENT";
        /// A DCT has drained.
        DctDrained = 0x1c, "DCT_DRAINED";
        /// A DC access key was wrong.
        DctKeyViolation = 0x1d, "DCT_KEY_VIOLATION";
        /// FPGA error.
        FpgaError = 0x20, "FPGA_ERROR";
        /// FPGA QP error.
        FpgaQpError = 0x21, "FPGA_QP_ERROR";
        /// General event; the subtype distinguishes them.
        General = 0x22, "GENERAL_EVENT";
        /// A monitored counter passed its threshold.
        MonitorCounter = 0x24, "MONITOR_COUNTER";
        /// Pulse per second.
        Pps = 0x25, "PPS_EVENT";
        /// Firmware tracer.
        DeviceTracer = 0x26, "DEVICE_TRACER";
        /// An object changed.
        ObjectChange = 0x27, "OBJECT_CHANGE";
        _ = Unknown, "UNKNOWN";
    }
    /// Every type that has a name.
    const ALL;
    /// The type with this number.
    fn from_number;
    /// Name, as in `device.h`.
    fn name;
    /// The number in the entry, and of the bit in the event bit mask of CREATE_EQ.
    fn number;
}

impl EventType {
    /// Its bit in the first quadword of an event bit mask; 0 for types above 63.
    #[must_use]
    pub const fn mask(self) -> u64 {
        match 1u64.checked_shl(self.number() as u32) {
            Some(bit) => bit,
            None => 0,
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#04x})", self.name(), self.number())
    }
}

/// The change of a port's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortChange {
    /// 1: it went down.
    Down,
    /// 4: it became active.
    Active,
    /// 5: the link is up, the port not yet configured.
    Initialized,
    /// 6: its LID changed.
    Lid,
    /// 7: its P_Key table changed.
    Pkey,
    /// 8: its GUID changed.
    Guid,
    /// 9: the subnet manager asks clients to register again.
    ClientReregister,
    /// Any other subtype.
    Unknown(u8),
}

impl PortChange {
    /// From the event's subtype.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Down,
            4 => Self::Active,
            5 => Self::Initialized,
            6 => Self::Lid,
            7 => Self::Pkey,
            8 => Self::Guid,
            9 => Self::ClientReregister,
            other => Self::Unknown(other),
        }
    }

    /// The event's subtype.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Down => 1,
            Self::Active => 4,
            Self::Initialized => 5,
            Self::Lid => 6,
            Self::Pkey => 7,
            Self::Guid => 8,
            Self::ClientReregister => 9,
            Self::Unknown(other) => other,
        }
    }
}

/// The state of a firmware reset that all hosts of the card have to agree on, as for an update
/// (`MLX5_SYNC_RST_STATE_*` of Linux's `device.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncReset {
    /// 0: another host, or a tool, asks for it.
    Requested,
    /// 1: it happens now.
    Now,
    /// 2: it does not happen.
    Aborted,
    /// 3: it happens when all drivers have let go.
    Unload,
    /// Any other state.
    Unknown(u8),
}

impl SyncReset {
    /// Reads it from the four low bits of the event data's fourth byte.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number & 0xf {
            0 => Self::Requested,
            1 => Self::Now,
            2 => Self::Aborted,
            3 => Self::Unload,
            other => Self::Unknown(other),
        }
    }

    /// Returns the bits of the event.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Requested => 0,
            Self::Now => 1,
            Self::Aborted => 2,
            Self::Unload => 3,
            Self::Unknown(other) => other & 0xf,
        }
    }
}

/// The queue that a queue event is about: a resource type and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// 0: a queue pair.
    Qp(Qpn),
    /// 1: a receive queue.
    Rq(u32),
    /// 2: a send queue.
    Sq(u32),
    /// 3: a shared receive queue.
    Srq(Srqn),
    /// 4: an XRC shared receive queue.
    XrcSrq(Srqn),
    /// 5: an extended receive queue.
    Xrq(u32),
    /// 6: a DC target.
    Dct(u32),
    /// Any other type.
    Unknown {
        /// Resource type.
        kind: u8,
        /// Number.
        number: u32,
    },
}

impl Queue {
    /// From type and number.
    #[must_use]
    pub const fn new(kind: u8, number: u32) -> Self {
        match kind {
            0 => Self::Qp(Qpn::from_low_bits(number)),
            1 => Self::Rq(number),
            2 => Self::Sq(number),
            3 => Self::Srq(Srqn::from_low_bits(number)),
            4 => Self::XrcSrq(Srqn::from_low_bits(number)),
            5 => Self::Xrq(number),
            6 => Self::Dct(number),
            kind => Self::Unknown { kind, number },
        }
    }

    /// Type and number.
    #[must_use]
    pub const fn parts(self) -> (u8, u32) {
        match self {
            Self::Qp(qpn) => (0, qpn.number()),
            Self::Rq(number) => (1, number),
            Self::Sq(number) => (2, number),
            Self::Srq(srqn) => (3, srqn.number()),
            Self::XrcSrq(srqn) => (4, srqn.number()),
            Self::Xrq(number) => (5, number),
            Self::Dct(number) => (6, number),
            Self::Unknown { kind, number } => (kind, number),
        }
    }
}

/// An event, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An armed CQ has a completion.
    Completion(Cqn),
    /// Commands completed: one bit for each entry of the command queue.
    Command {
        /// The bit vector.
        slots: u32,
    },
    /// The firmware requests pages (`pages` > 0), or will return some (`pages` < 0).
    PageRequest {
        /// For which function.
        function_id: u16,
        /// The function is the embedded processor's.
        embedded_cpu: bool,
        /// All pages of the function are to be taken back.
        release_all: bool,
        /// The number of pages.
        pages: i32,
    },
    /// A port changed.
    PortChange {
        /// Port number, from 1.
        port: u8,
        /// The kind of change.
        change: PortChange,
    },
    /// Sensors are too hot (`struct mlx5_eqe_temp_warning`).
    TemperatureWarning {
        /// The sensors that report it.
        sensors: Sensors,
    },
    /// A CQ failed.
    CqError {
        /// The CQ's number.
        cqn: Cqn,
        /// 1: overrun, 2: access violation.
        syndrome: u8,
    },
    /// Something happened to a QP, SRQ or another queue; the type says what.
    Queue {
        /// The type of the event.
        what: EventType,
        /// To which.
        queue: Queue,
    },
    /// A reset of the firmware that all hosts have to agree on (subtype 8 of [`EventType::General`]).
    SyncReset {
        /// The state of the reset.
        state: SyncReset,
    },
    /// The device failed internally.
    InternalError,
    /// A type that this crate does not take apart.
    Other {
        /// Its type.
        what: EventType,
        /// Its subtype.
        sub_type: u8,
    },
}

/// [`Event::CqError`]: the CQ was full.
pub const CQ_OVERRUN: u8 = 1;

/// `MLX5_GENERAL_SUBTYPE_PCI_SYNC_FOR_FW_UPDATE_EVENT`.
const SYNC_RESET: u8 = 8;
const EMBEDDED_CPU: u16 = 0x8000;
const RELEASE_ALL: u16 = 0x4000;

impl Event {
    /// Reads an entry that belongs to the consumer.
    #[must_use]
    pub fn parse(eqe: &Eqe) -> Self {
        let data = eqe.event_data();
        let what = EventType::from_number(eqe.event_type());
        match what {
            EventType::Completion => {
                let event: &CompEvent = transmute_ref!(data);
                Self::Completion(Cqn::from_low_bits(event.cq_number()))
            }
            EventType::Command => {
                let event: &CmdInterCompEvent = transmute_ref!(data);
                Self::Command {
                    slots: event.command_completion_vector(),
                }
            }
            EventType::PageRequest => {
                let event: &PagesReqEvent = transmute_ref!(data);
                let flags = u16::from_be_bytes([data[0], data[1]]);
                Self::PageRequest {
                    function_id: event.function_id(),
                    embedded_cpu: flags & EMBEDDED_CPU != 0,
                    release_all: flags & RELEASE_ALL != 0,
                    pages: event.num_pages().cast_signed(),
                }
            }
            EventType::PortChange => {
                let event: &PortStateChangeEvent = transmute_ref!(data);
                Self::PortChange {
                    port: event.port_num(),
                    change: PortChange::from_number(eqe.event_sub_type()),
                }
            }
            EventType::TemperatureWarning => Self::TemperatureWarning {
                sensors: Sensors::new(u128::from_be_bytes(*part(data, 0))),
            },
            EventType::CqError => {
                let event: &CqError = transmute_ref!(data);
                Self::CqError {
                    cqn: Cqn::from_low_bits(event.cqn()),
                    syndrome: event.syndrome(),
                }
            }
            EventType::PathMigrated
            | EventType::CommunicationEstablished
            | EventType::SqDrained
            | EventType::WqCatastrophic
            | EventType::PathMigrationFailed
            | EventType::WqInvalidRequest
            | EventType::WqAccessError
            | EventType::SrqCatastrophic
            | EventType::SrqLastWqe
            | EventType::SrqLimit => {
                let event: &QpEvents = transmute_ref!(data);
                Self::Queue {
                    what,
                    queue: Queue::new(event.r#type(), event.qpn_rqn_sqn()),
                }
            }
            EventType::DctDrained | EventType::DctKeyViolation => {
                let event: &DctEvents = transmute_ref!(data);
                Self::Queue {
                    what,
                    queue: Queue::Dct(event.dct_number()),
                }
            }
            EventType::InternalError => Self::InternalError,
            EventType::General if eqe.event_sub_type() == SYNC_RESET => Self::SyncReset {
                state: SyncReset::from_number(data[3]),
            },
            _ => Self::Other {
                what,
                sub_type: eqe.event_sub_type(),
            },
        }
    }

    /// The entry that says this, with signature 0 and owner 0.
    #[must_use]
    pub fn to_eqe(self) -> Eqe {
        let mut eqe = Eqe::ZERO;
        let data = eqe.event_data_mut();
        let (what, sub_type) = match self {
            Self::Completion(cqn) => {
                let event: &mut CompEvent = zerocopy::transmute_mut!(data);
                event.set_cq_number(cqn.number());
                (EventType::Completion, 0)
            }
            Self::Command { slots } => {
                let event: &mut CmdInterCompEvent = zerocopy::transmute_mut!(data);
                event.set_command_completion_vector(slots);
                (EventType::Command, 0)
            }
            Self::PageRequest {
                function_id,
                embedded_cpu,
                release_all,
                pages,
            } => {
                let flags = if embedded_cpu { EMBEDDED_CPU } else { 0 }
                    | if release_all { RELEASE_ALL } else { 0 };
                data[..2].copy_from_slice(&flags.to_be_bytes());
                let event: &mut PagesReqEvent = zerocopy::transmute_mut!(data);
                event
                    .set_function_id(function_id)
                    .set_num_pages(pages.cast_unsigned());
                (EventType::PageRequest, 0)
            }
            Self::PortChange { port, change } => {
                let event: &mut PortStateChangeEvent = zerocopy::transmute_mut!(data);
                event.set_port_num(port & 0xf);
                (EventType::PortChange, change.number())
            }
            Self::TemperatureWarning { sensors } => {
                *part_mut(data, 0) = sensors.bits().to_be_bytes();
                (EventType::TemperatureWarning, 0)
            }
            Self::CqError { cqn, syndrome } => {
                let event: &mut CqError = zerocopy::transmute_mut!(data);
                event.set_cqn(cqn.number()).set_syndrome(syndrome);
                (EventType::CqError, 0)
            }
            Self::Queue { what, queue } => {
                let (kind, number) = queue.parts();
                let event: &mut QpEvents = zerocopy::transmute_mut!(data);
                event.set_type(kind).set_qpn_rqn_sqn(number & 0x00ff_ffff);
                (what, 0)
            }
            Self::InternalError => (EventType::InternalError, 0),
            Self::SyncReset { state } => {
                data[3] = state.number();
                (EventType::General, SYNC_RESET)
            }
            Self::Other { what, sub_type } => (what, sub_type),
        };
        eqe.set_event_type(what.number())
            .set_event_sub_type(sub_type);
        eqe
    }
}

#[cfg(test)]
mod tests;
