//! The vocabulary of librdmacm: ids, addresses, events, parameters, options, errors.

pub(crate) mod awaited;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod extended;
pub(crate) mod id;
pub(crate) mod param;
pub(crate) mod sockaddr;

pub use event::{CmEvent, ConnEvent, EventType, TraceEntry, UdEvent, event_str};
pub use id::{ChannelId, CmId, IdOption, IdState, IdType, PortSpace, Route};
pub use param::{
    ACCEPT_PRIVATE_DATA_MAX, CONNECT_PRIVATE_DATA_MAX, ConnParam, DEVICE_MAX,
    REJECT_PRIVATE_DATA_MAX, UD_ACCEPT_PRIVATE_DATA_MAX, UD_CONNECT_PRIVATE_DATA_MAX, UDP_QKEY,
};
