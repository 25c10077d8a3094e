//! The objects of verbs: protection domains, memory regions, completion queues, queue pairs, shared receive queues.

mod ah;
pub mod cq;
pub mod dm;
pub mod mkey;
pub mod mr;
mod mr_error;
pub mod mw;
pub mod null_mr;
pub mod pd;
pub mod qp;
pub mod srq;
pub mod xrc;
