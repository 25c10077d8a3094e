//! The data path: posting to send and receive queues, and polling CQs.

pub(crate) mod bind;
pub(crate) mod cq_ex;
pub(crate) mod lists;
pub(crate) mod opened;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod receive;
pub(crate) mod wr;
