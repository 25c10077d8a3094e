//! Queue pairs and other verbs objects of ids, and data by id.

pub(crate) mod attr;
mod create;
mod data;
pub(crate) mod dc;
pub(crate) mod ending;
pub(crate) mod endpoint;
mod extended;
pub(crate) mod hca;
pub(crate) mod kinds;
pub(crate) mod making;
pub(crate) mod objects;
pub(crate) mod owned;
pub(crate) mod pool;
mod qp;
mod srq;
mod xrc;
