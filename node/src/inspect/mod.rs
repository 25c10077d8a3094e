//! Inspection of a device in use: the counters of its port, and the QPs and CQs that are alive. Its own program calls this, or
//! another one asks through a socket ([`Node::serve`](crate::Node::serve)).

mod client;
mod counters;
mod resources;
mod server;

pub use client::{ask_counters, ask_resources};
pub use counters::{Count, count};
pub use resources::list;
pub(crate) use server::Served;

/// The requests that a served node answers, each a line, with an answer that ends with the connection. Its first line is
/// [`ANSWER`], or says what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Counters,
    Resources,
    ResourcesJson,
}

const ANSWER: &str = "ok";

impl Request {
    const ALL: [Self; 3] = [Self::Counters, Self::Resources, Self::ResourcesJson];

    const fn line(self) -> &'static str {
        match self {
            Self::Counters => "counters\n",
            Self::Resources => "resources\n",
            Self::ResourcesJson => "resources json\n",
        }
    }

    /// The length of the longest request in bytes.
    const LONGEST: u64 = 64;
}
