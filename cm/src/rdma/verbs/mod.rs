//! Queue pairs and other verbs objects of ids, and data by id.

mod data;
mod endpoint;
mod extended;
pub(crate) mod objects;
mod qp;
mod srq;
mod xrc;
