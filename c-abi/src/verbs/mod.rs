//! The objects of libibverbs: creating, modifying, querying and destroying them.

pub(crate) mod ah;
pub(crate) mod async_event;
pub(crate) mod buffer;
pub(crate) mod channel;
pub(crate) mod comp_event;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod create_qp;
pub(crate) mod dm;
pub(crate) mod modify;
pub(crate) mod moved;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod pd;
pub(crate) mod provider;
pub(crate) mod qp;
pub(crate) mod query;
pub(crate) mod rereg;
pub(crate) mod srq;
pub(crate) mod strings;
pub(crate) mod subject;
pub(crate) mod xrc;
