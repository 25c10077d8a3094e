//! librdmacm: ids, event channels, connections and endpoints.
//!
//! `RdmaCm` plays the part of the kernel, with QPs that are not its own; what librdmacm does itself is here: it moves the QPs
//! through their states, makes calls without a channel wait, and keeps the addresses of ids for the program.

mod addrinfo;
mod channel;
mod connect;
mod create;
mod endpoint;
mod event;
mod groups;
pub(crate) mod id;
mod multicast;
mod options;
mod own_events;
pub(crate) mod path;
mod queues;
pub(crate) mod sockaddr;
mod verbs_of;
mod wildcard;
mod write_event;

pub(crate) use channel::signal_channels;
pub(crate) use sockaddr::to_c;
