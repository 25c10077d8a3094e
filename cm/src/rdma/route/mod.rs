//! Addresses and the way to them: local addresses, neighbours on a link, paths in an InfiniBand subnet.

pub(crate) mod address;
pub(crate) mod addrinfo;
pub(crate) mod neighbours;
pub(crate) mod resolver;
pub(crate) mod subnet;
