//! Requests for datagram services, and their answers.

use core::time::Duration;

use super::super::types::{Address, ListenerId, Timers};
use crate::mad::{Ece, SidrStatus};

/// ID of a request for a datagram service. It ends with the request's last event, or with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SidrId(pub(in crate::engine) u32);

impl SidrId {
    /// The number that is on the wire when the request is this end's own.
    pub const fn request_id(self) -> u32 {
        self.0
    }
}

/// The parameters of a request for the QP of a datagram service.
#[derive(Debug, Clone, Copy)]
pub struct SidrParams<'a> {
    /// The service.
    pub service_id: u64,
    /// The path; its partition is the one in which the service is wanted.
    pub address: Address,
    /// Timers: `remote_response` is the time until the request is repeated, `local_response` means nothing here.
    pub timers: Timers,
    /// At most 216 bytes.
    pub private_data: &'a [u8],
    /// Comes back with the event.
    pub user: u64,
}

impl SidrParams<'_> {
    /// Parameters for the path `address`, with the timers of Linux and early repetitions.
    pub const fn new(service_id: u64, address: Address) -> SidrParams<'static> {
        SidrParams {
            service_id,
            address,
            timers: Timers {
                remote_response: 20,
                local_response: 20,
                max_retries: 15,
                early: Some(Duration::from_millis(256)),
            },
            private_data: &[],
            user: 0,
        }
    }
}

/// The parameters of an answer to such a request with a QP.
#[derive(Debug, Clone, Copy)]
pub struct SidrReply<'a> {
    /// The QP that serves.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// Vendor options of the QP.
    pub ece: Ece,
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}

impl SidrReply<'_> {
    /// A QP, and nothing else to say.
    pub const fn new(qpn: u32, qkey: u32) -> SidrReply<'static> {
        SidrReply {
            qpn,
            qkey,
            ece: Ece::NONE,
            private_data: &[],
        }
    }
}

/// Something that happened to a request for a datagram service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrEvent<'a> {
    /// The request.
    pub id: SidrId,
    /// The value that was given to [`sidr_request`](crate::engine::Engine::sidr_request); 0 for a request of the other end.
    pub user: u64,
    /// The event.
    pub kind: SidrEventKind<'a>,
}

/// The kind of event. Private data is as long as the message's field: its true length is not on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidrEventKind<'a> {
    /// A peer asks for a service. To be answered with `sidr_reply` or `sidr_reject`.
    Request {
        /// The listener that was asked for.
        listener: ListenerId,
        /// The listener's user value.
        listener_user: u64,
        /// The service.
        service_id: u64,
        /// The path to the peer that asks, with the partition in which the service is wanted.
        address: Address,
        /// 216 bytes.
        private_data: &'a [u8],
    },
    /// The service is there. The request's ID ends with this event.
    Resolved {
        /// The service.
        service_id: u64,
        /// The path to it.
        address: Address,
        /// The QP that serves.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
        /// Its vendor options.
        ece: Ece,
        /// The private data: 136 bytes.
        private_data: &'a [u8],
    },
    /// The service is not available. The request's ID ends with this event.
    Refused {
        /// The reason.
        status: SidrStatus,
        /// Additional information, up to 72 bytes: with [`SidrStatus::REDIRECT`] a ClassPortInfo.
        info: &'a [u8],
        /// The private data: 136 bytes.
        private_data: &'a [u8],
    },
    /// No answer in time. The request's ID ends with this event.
    Unreachable,
}
