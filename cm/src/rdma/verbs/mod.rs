//! The verbs objects of ids: QPs, CQs, PDs and SRQs, created, kept and destroyed.

pub(crate) mod attached;
mod create;
pub(crate) mod ending;
pub(crate) mod hca;
pub(crate) mod making;
pub(crate) mod objects;
pub(crate) mod owned;
pub(crate) mod pool;
