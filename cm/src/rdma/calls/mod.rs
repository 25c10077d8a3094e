//! The application's calls on ids, addresses, QPs and SRQs, and `rdma_verbs.h`.

mod address;
pub(crate) mod addrinfo;
#[cfg(feature = "attached-qps")]
mod attached;
mod data;
pub(crate) mod dc;
pub(crate) mod endpoint;
mod extended;
mod id;
mod qp;
mod srq;
mod xrc;
