//! Two nodes on one cable, and a conversation between them in which every byte is checked.

mod end;
mod nodes;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::error::CloseError;
use bareverbs_core::qp::QpCap;
use bareverbs_core::{CqSlot, Device, PageChunk, QpSlot, SrqSlot, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::link::Cable;
use connectx_model::{Config as Card, Objects};

pub(crate) use end::End;
pub(crate) use nodes::Nodes;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const PORT: u16 = 7174;
/// Nothing that the CM or a QP retries goes on for longer than this.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'d>>;

/// A failure of a conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Failure {
    /// A call failed.
    Call { node: usize, error: RdmaError },
    /// The CM said so.
    Event {
        node: usize,
        event: EventType,
        status: i32,
    },
    /// A work request failed.
    Completion { node: usize, status: WcStatus },
    /// Nothing happened any more. Never acceptable.
    Stuck { waiting_for: &'static str },
}

impl Failure {
    /// The node that failed first.
    pub(crate) fn node(&self) -> Option<usize> {
        match *self {
            Self::Call { node, .. } | Self::Event { node, .. } | Self::Completion { node, .. } => {
                Some(node)
            }
            Self::Stuck { .. } => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { node, error } => write!(f, "node {node}: {error}"),
            Self::Event {
                node,
                event,
                status,
            } => write!(f, "node {node}: {event}, status {status}"),
            Self::Completion { node, status } => write!(f, "node {node}: {status}"),
            Self::Stuck { waiting_for } => write!(f, "timeout waiting for {waiting_for}"),
        }
    }
}

pub(crate) fn world(seed: u64) -> World {
    Builder::with_link(Box::new(Cable::new()), seed)
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped()
}

fn quick() -> bareverbs_core::Config {
    let mut config = bareverbs_core::Config::DEFAULT;
    config.command_timeout = 50 * MS;
    config.teardown_timeout = 50 * MS;
    config.health_interval = 5 * MS;
    config
}

pub(crate) fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

/// Returns `true` if a frame carries this CM message: UD SEND_ONLY over IPv4, then the MAD's attribute.
pub(crate) fn carries(frame: &[u8], message: Attribute) -> bool {
    const BTH: usize = 14 + 20 + 8;
    frame.get(BTH) == Some(&0x64)
        && frame.get(BTH + 36..BTH + 38) == Some(&(message as u16).to_be_bytes()[..])
}

pub(crate) fn init<'a, 'd>() -> QpInit<'a, 'd, ModelPlatform> {
    QpInit {
        cap: QpCap {
            max_send_wr: 16,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        ..QpInit::default()
    }
}

/// Size of the nodes' storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) connections: usize,
    pub(crate) gsi_depth: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            connections: 4,
            gsi_depth: 16,
        }
    }
}

/// The results when both nodes are gone.
#[derive(Debug)]
pub(crate) struct After {
    pub(crate) closed: [Result<(), CloseError>; 2],
}

/// Both devices from reset to the end, a manager on each. `work` gets them when nothing has been said yet.
pub(crate) fn with_nodes<R>(
    world: &World,
    seed: u64,
    size: Size,
    work: impl FnOnce(&mut Nodes<'_, '_, '_>) -> R,
) -> (R, After) {
    let connections = size.connections + 1;
    let mut storage = [0, 1].map(|_| {
        let mut qps = Vec::new();
        qps.resize_with(connections + 2, QpSlot::new);
        let mut cqs = Vec::new();
        cqs.resize_with(2 * connections + 4, CqSlot::new);
        let mut chunks = Vec::new();
        chunks.resize_with(256, PageChunk::new);
        let slot = bareverbs_core::DeviceSlot::new();
        (slot, qps, cqs, [const { SrqSlot::new() }; 1], chunks)
    });
    let mut node = 0;
    let devices = storage.each_mut().map(|(slot, qps, cqs, srqs, chunks)| {
        let storage = bareverbs_core::Storage::new(slot, qps, cqs, srqs, chunks);
        let device = world.open(node, quick(), storage, &[ip(node)]);
        node += 1;
        device
    });
    let result = {
        let neighbours =
            [0, 1].map(|node| (ip(node), world.with_model(node, |model| model.config().mac)));
        let mut storage = [0, 1].map(|_| {
            let mut ids = Vec::new();
            ids.resize_with(connections, || IdSlot::EMPTY);
            (
                ids,
                [ChannelSlot::EMPTY; 1],
                vec![bareverbs_cm::engine::Slot::EMPTY; 2 * connections],
                [bareverbs_cm::engine::ListenerSlot::EMPTY; 2],
                vec![bareverbs_cm::engine::ReplySlot::EMPTY; 32],
            )
        });
        let mut node = 0;
        let mut cms = storage
            .each_mut()
            .map(|(ids, channels, connections, listeners, replies)| {
                let config = rdma::Config {
                    gsi_depth: size.gsi_depth,
                    ..rdma::Config::new(seed.wrapping_mul(2) + node as u64)
                };
                let storage = rdma::Storage {
                    ids,
                    channels,
                    connections,
                    listeners,
                    replies,
                    // Connections only.
                    sidr: &mut [],
                    groups: &mut [],
                    deferred_mads: &mut [],
                };
                let cm = RdmaCm::new(
                    &devices[node],
                    StaticNeighbours(&neighbours),
                    config,
                    storage,
                );
                node += 1;
                cm.expect("QP1")
            });
        let channels = cms
            .each_mut()
            .map(|cm| cm.create_event_channel().expect("a channel"));
        work(&mut Nodes::new(world, cms, channels))
    };
    let closed = devices.map(Device::close);
    (result, After { closed })
}

/// Listen on one node, connect from the other, exchange, disconnect, free. After a failure everything is taken down,
/// and the other side's clean end is checked.
pub(crate) fn converse(
    nodes: &mut Nodes<'_, '_, '_>,
    client: usize,
    closer: usize,
    salt: u64,
    what: &str,
) -> Result<(), Failure> {
    let listener = nodes.listener(1 - client, 4);
    let outcome = nodes.connect(client).and_then(|ends| {
        nodes.exchange(&ends, salt)?;
        nodes.disconnect(ends, closer)
    });
    let first = outcome.err().and_then(|failure| failure.node());
    finish(nodes, first, 1 - client, listener, what);
    outcome
}

/// Destroys every id of both nodes.
pub(crate) fn finish(
    nodes: &mut Nodes<'_, '_, '_>,
    first: Option<usize>,
    server: usize,
    listener: CmId,
    what: &str,
) {
    // First the listener, so that a request which is repeated is not a new one.
    if let Err(error) = nodes.cms[server].destroy_id(listener) {
        nodes.note_dead(server, error, what);
    }
    nodes.wind_down(first, what);
    for node in 0..2 {
        assert_eq!(
            nodes.cms[node].ids_in_use(),
            0,
            "{what}: ids of node {node}"
        );
    }
}

/// Nothing of the devices' is left in the host's memory, and nothing of the driver's in the devices.
#[track_caller]
pub(crate) fn assert_nothing_held(world: &World, what: &str) {
    for node in 0..2 {
        assert_eq!(world.take_faults(node), [], "{what}, node {node}");
        let accounting = world.accounting(node);
        assert_eq!(
            (accounting.allocated, accounting.mapped, accounting.regions),
            (0, 0, 0),
            "{what}, node {node}: memory leaked"
        );
        world.with_model(node, |model| {
            assert_eq!(model.pages_held(), 0, "{what}, node {node}");
            assert_eq!(model.objects(), Objects::default(), "{what}, node {node}");
        });
    }
}

/// The same, and the firmware was not left with anything at TEARDOWN_HCA either.
#[track_caller]
pub(crate) fn assert_orderly(world: &World, after: &After, what: &str) {
    for node in 0..2 {
        after.closed[node].unwrap_or_else(|error| panic!("{what}, node {node}: {error}"));
        world.with_model(node, |model| {
            assert_eq!(model.leaks(), [], "{what}, node {node}");
        });
    }
    assert_nothing_held(world, what);
}
