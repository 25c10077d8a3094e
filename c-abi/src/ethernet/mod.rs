//! Raw packet QPs: rules of steering and their counters, work queues, and receive-side scaling.

pub(crate) mod counters;
pub(crate) mod raw;
pub(crate) mod raw_qp;
pub(crate) mod rss;
pub(crate) mod rules;
pub(crate) mod work_queue;
