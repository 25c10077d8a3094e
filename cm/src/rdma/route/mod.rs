//! Routes: the path from an id to its peer and to its groups, the return path to the sender of a MAD, and the MADs that
//! wait for one.

pub(crate) mod deferred;
mod destination;
pub(crate) mod ends;
mod infiniband;
pub(crate) mod joining;
pub(crate) mod return_path;
pub(crate) mod router;
