//! The storage that the caller hands in, for all that the manager keeps.

use bareverbs_core::Platform;

use crate::engine::{ListenerSlot, ReplySlot, SidrSlot, Slot};
use crate::rdma::id::group::GroupSlot;
use crate::rdma::id::slot::{ChannelSlot, IdSlot};
use crate::rdma::route::deferred::DeferredMadSlot;

/// All the memory that the manager uses beside itself.
#[derive(Debug)]
pub struct Storage<'s, 'd, P: Platform> {
    /// One slot per id; each connection that another host asks for takes one when the request comes.
    ///
    /// The last eighth (`len / 8` slots) is not for a source that has more half-open connections than that, the one that it
    /// asks for included, if one of them is older than [`half_open_age`](crate::engine::Config::half_open_age): then that one
    /// is ended for it with REJ 3, no slot is taken, and the request is served when it comes again. If none is that old, the
    /// source gets what is free. Sources are counted by a hash of six bits, so that two may count as one.
    pub ids: &'s mut [IdSlot<'d, P>],
    /// One slot per event channel; none are needed for synchronous ids.
    pub channels: &'s mut [ChannelSlot],
    /// One slot per connection, those in timewait included: give some more than ids.
    pub connections: &'s mut [Slot],
    /// One slot per port that is listened to.
    pub listeners: &'s mut [ListenerSlot],
    /// Answers without a connection that may wait at once.
    pub replies: &'s mut [ReplySlot],
    /// One slot per datagram service that is being asked for, here or by others; none are needed for connections. What is
    /// left over keeps answers for repetitions.
    pub sidr: &'s mut [SidrSlot],
    /// One slot per multicast group that an id joins.
    pub groups: &'s mut [GroupSlot],
    /// One slot per message of a host that has to be asked for before it can be answered: as many as hosts may come at once
    /// to a server that has none of their addresses. Once half of them are taken, a host that has an eighth of them
    /// gets no more: a server whose clients open `n` connections at once each needs `2 * n`. A message that does not
    /// fit is lost, and sent again by its sender, at the earliest after a quarter of a second if that is one of these
    /// managers.
    pub deferred_mads: &'s mut [DeferredMadSlot],
}

/// `N` ids, as [`Resources`] counts them, with what they need: twice as many connections (those in timewait take their
/// share), and as many listeners, datagram services, groups and deferred messages.
#[derive(Debug)]
pub struct Ids<'d, P: Platform, const N: usize> {
    ids: [IdSlot<'d, P>; N],
    connections: [[Slot; N]; 2],
    listeners: [ListenerSlot; N],
    sidr: [SidrSlot; N],
    groups: [GroupSlot; N],
    deferred_mads: [DeferredMadSlot; N],
}

/// `N` event channels, as [`Resources`] counts them.
pub type Channels<const N: usize> = [ChannelSlot; N];

/// Storage as one value, for arrays and statics. The type says how many there are of what:
/// `Resources<Ids<P, 8>, Channels<1>>`.
///
/// Everything that the manager keeps is in here, so that it has to live longer than the manager, and less long than the
/// device.
#[derive(Debug)]
pub struct Resources<I, C> {
    ids: I,
    channels: C,
    replies: [ReplySlot; 32],
}

impl<'d, P: Platform, const IDS: usize, const CHANNELS: usize>
    Resources<Ids<'d, P, IDS>, Channels<CHANNELS>>
{
    /// Empty storage.
    pub const fn new() -> Self {
        Self {
            ids: Ids {
                ids: [const { IdSlot::EMPTY }; IDS],
                connections: [const { [const { Slot::EMPTY }; IDS] }; 2],
                listeners: [ListenerSlot::EMPTY; IDS],
                sidr: [const { SidrSlot::EMPTY }; IDS],
                groups: [GroupSlot::EMPTY; IDS],
                deferred_mads: [DeferredMadSlot::EMPTY; IDS],
            },
            channels: [const { ChannelSlot::EMPTY }; CHANNELS],
            replies: [ReplySlot::EMPTY; 32],
        }
    }

    /// The storage.
    pub const fn storage(&mut self) -> Storage<'_, 'd, P> {
        Storage {
            ids: &mut self.ids.ids,
            channels: &mut self.channels,
            connections: self.ids.connections.as_flattened_mut(),
            listeners: &mut self.ids.listeners,
            replies: &mut self.replies,
            sidr: &mut self.ids.sidr,
            groups: &mut self.ids.groups,
            deferred_mads: &mut self.ids.deferred_mads,
        }
    }
}

impl<P: Platform, const IDS: usize, const CHANNELS: usize> Default
    for Resources<Ids<'_, P, IDS>, Channels<CHANNELS>>
{
    fn default() -> Self {
        Self::new()
    }
}
