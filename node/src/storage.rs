//! The memory of a device, the IP host and the connection manager, by the number of connections.

use bareverbs_cm::engine::{ListenerSlot, ReplySlot, SidrSlot, Slot};
use bareverbs_cm::ip::{Addresses, Groups, Neighbours, Routes};
use bareverbs_cm::ipoib::PeerSlot;
use bareverbs_cm::rdma::{MemberSlot, PathSlot, SubnetStorage};
use bareverbs_cm::sa::QuestionSlot;
use bareverbs_cm::{ip, rdma};
use bareverbs_core::{CqSlot, DeviceSlot, PageChunk, Platform, QpSlot, SrqSlot, Storage};

use crate::report::ReportingRecorder;

/// Connections that are closed and wait for their last packets to have left the network (TimeWait), beside those that
/// are not.
const ENDED: usize = 1024;

/// Partitions beside the first one of the port's table in which the connection manager sends at once.
pub(crate) const PARTITIONS: usize = 2;

/// [`Storage`] for a device, on the heap, with a flight recorder. If the device has failed, dropping this writes the records to
/// a file, whose name is logged ([`REPORTS_VARIABLE`](crate::REPORTS_VARIABLE)).
#[derive(Debug)]
pub struct DeviceStorage {
    device: DeviceSlot,
    qps: Vec<QpSlot>,
    cqs: Vec<CqSlot>,
    srqs: Vec<SrqSlot>,
    page_chunks: Vec<PageChunk>,
    recorder: ReportingRecorder,
}

impl DeviceStorage {
    /// For as many connections: a queue pair and two completion queues for each, and some for the connection manager and for
    /// IP over InfiniBand.
    /// `page_chunks` are for the firmware's pages, at most 2 MiB each.
    #[must_use]
    pub fn for_connections(connections: usize, page_chunks: Vec<PageChunk>) -> Self {
        Self {
            device: DeviceSlot::new(),
            qps: slots(connections + 4 + PARTITIONS, QpSlot::new),
            cqs: slots(2 * connections + 8 + PARTITIONS, CqSlot::new),
            srqs: slots(1, SrqSlot::new),
            page_chunks,
            recorder: ReportingRecorder::new(),
        }
    }

    /// The storage that [`Device::open`](bareverbs_core::Device::open) takes.
    #[must_use]
    pub fn storage(&mut self) -> Storage<'_> {
        Storage::new(
            &mut self.device,
            &mut self.qps,
            &mut self.cqs,
            &mut self.srqs,
            &mut self.page_chunks,
        )
        .record(self.recorder.recorder())
    }
}

/// [`rdma::Storage`] for the connection manager, on the heap.
pub struct ManagerStorage<'d, P: Platform> {
    ids: Vec<rdma::IdSlot<'d, P>>,
    channels: Vec<rdma::ChannelSlot>,
    connections: Vec<Slot>,
    listeners: Vec<ListenerSlot>,
    replies: Vec<ReplySlot>,
    sidr: Vec<SidrSlot>,
    groups: Vec<rdma::GroupSlot>,
    deferred_mads: Vec<rdma::DeferredMadSlot>,
}

impl<'d, P: Platform> ManagerStorage<'d, P> {
    /// For as many connections at once, two listeners and two event channels.
    #[must_use]
    pub fn for_connections(connections: usize) -> Self {
        Self {
            // Beside the connections' ids there are those of listeners, and more than an eighth that stays free: that is not
            // for a peer with as many connections that are not established yet, which may be all of them.
            ids: slots(connections + connections / 4 + 8, || rdma::IdSlot::EMPTY),
            channels: slots(2, || rdma::ChannelSlot::EMPTY),
            connections: slots(self::connections(connections), || Slot::EMPTY),
            listeners: slots(2, || ListenerSlot::EMPTY),
            replies: slots(32, || ReplySlot::EMPTY),
            sidr: slots(connections, || SidrSlot::EMPTY),
            groups: slots(connections, || rdma::GroupSlot::EMPTY),
            // A host of which all connections come at once, and which has to be asked for first, may have half of it.
            deferred_mads: slots((2 * connections).max(64), || rdma::DeferredMadSlot::EMPTY),
        }
    }

    /// The storage that [`RdmaCm::new`](rdma::RdmaCm::new) takes.
    #[must_use]
    pub fn storage(&mut self) -> rdma::Storage<'_, 'd, P> {
        rdma::Storage {
            ids: &mut self.ids,
            channels: &mut self.channels,
            connections: &mut self.connections,
            listeners: &mut self.listeners,
            replies: &mut self.replies,
            sidr: &mut self.sidr,
            groups: &mut self.groups,
            deferred_mads: &mut self.deferred_mads,
        }
    }
}

/// Connections that the manager has room for, those in timewait included.
pub(crate) const fn connections(connections: usize) -> usize {
    match connections < ENDED {
        true => connections + ENDED,
        false => connections.saturating_mul(2),
    }
}

/// The IP host's.
pub(crate) type Host = ip::Resources<Addresses<2>, Neighbours<64>, Routes<1>, Groups<16>>;

/// Storage of an IP host, without addresses.
pub(crate) fn host() -> Host {
    ip::Resources::new()
}

/// Memory for an InfiniBand port: what subnet administration is asked and has answered, and the neighbours.
pub(crate) struct SubnetMemory {
    questions: Vec<QuestionSlot>,
    paths: Vec<PathSlot>,
    members: Vec<MemberSlot>,
    peers: Vec<PeerSlot>,
}

impl SubnetMemory {
    /// For as many connections, which may be to as many hosts, and for the groups of IP over InfiniBand.
    pub(crate) fn for_connections(connections: usize) -> Self {
        Self {
            questions: slots(connections.clamp(16, 64), || QuestionSlot::EMPTY),
            paths: slots(connections.clamp(64, 1024), || PathSlot::EMPTY),
            members: slots(connections + 32, || MemberSlot::EMPTY),
            peers: slots(64, || PeerSlot::EMPTY),
        }
    }

    /// The storage that [`SubnetAdministration::new`](rdma::SubnetAdministration::new) and
    /// [`IpOverInfiniband::new`](rdma::IpOverInfiniband::new) take.
    pub(crate) fn storage(&mut self) -> (SubnetStorage<'_>, &mut [PeerSlot]) {
        let subnet = SubnetStorage {
            questions: &mut self.questions,
            paths: &mut self.paths,
            members: &mut self.members,
        };
        (subnet, &mut self.peers)
    }
}

/// Makes `count` empty slots.
fn slots<T>(count: usize, empty: fn() -> T) -> Vec<T> {
    std::iter::repeat_with(empty).take(count).collect()
}
