//! Queue pairs at work: whose turn it is ([`schedule`]), WQEs ([`read_ahead`], [`fetch`], [`shared`], [`umr`]) to the transport and
//! completions back from it. The transport, which is [`roce`](crate::roce), sees the device through [`view`].

mod completion;
mod fetch;
mod queue_pair;
pub(crate) mod read_ahead;
mod schedule;
mod shared;
mod umr;
mod view;
