//! The RDMA CM on InfiniBand ports: paths, connections, datagrams and groups, against a responder for subnet administration.

pub(crate) mod support;

mod alternate;
mod connections;
mod failures;
mod groups;
mod ip;
mod ip_stack;
mod limited;
mod management;
mod notices;
mod partitions;
mod paths;
mod types;
