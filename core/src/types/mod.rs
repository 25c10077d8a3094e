//! The types that calls take and give: attributes, addresses, errors, events, completions.

pub mod ah;
pub mod clock;
pub mod config;
pub mod error;
pub mod event;
pub mod gid;
pub mod port;
pub(crate) mod qp;
pub mod rate;
pub(crate) mod sge;
pub(crate) mod streams;
pub mod wc;
