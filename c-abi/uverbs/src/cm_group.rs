//! A multicast group that an id of the connection manager's is in.

use std::net::IpAddr;

use bareverbs_node::cm::rdma::EventType;

/// A group that an id has joined. Its number is the context of the join.
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) group: IpAddr,
    pub(crate) uid: u64,
    /// Events that the program has taken.
    pub(crate) events: u32,
}

impl Group {
    pub(crate) const fn is_of(&self, id: u32) -> bool {
        self.id == id
    }
}

/// Returns `true` if an event is about a group, whose number is its argument then.
pub(crate) const fn is_of_group(event: EventType) -> bool {
    matches!(event, EventType::MulticastJoin | EventType::MulticastError)
}
