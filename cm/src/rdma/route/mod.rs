//! Addresses and routes to them: local addresses, neighbours on a link, paths in an InfiniBand subnet, and
//! the MADs that wait for them.

pub(crate) mod address;
pub(crate) mod addrinfo;
pub(crate) mod deferred;
mod infiniband;
#[cfg(feature = "infiniband")]
pub(crate) mod ipoib;
pub(crate) mod neighbours;
pub(crate) mod request;
mod resolve;
pub(crate) mod resolver;
pub(crate) mod return_path;
pub(crate) mod router;
pub(crate) mod subnet;
pub(crate) mod with_user;
