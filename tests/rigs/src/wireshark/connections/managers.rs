//! The RDMA CM at both ends: the calls, and the state that the driver reports.

use crate::wireshark::expect::source_port;
use crate::wireshark::packets::{Flow, Operation, Service, Target};
use crate::wireshark::scene::{Address, Node, Scene};
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{
    self, ChannelId, Channels, CmEvent, CmId, ConnParam, EventType, IdOption, Ids, Neighbour,
    PortSpace, QpInit, RdmaCm, RdmaError, Resolution, SendFlags, Subnet, TraceEntry,
};
use bareverbs_core::qp::{QpCap, QpState};
use bareverbs_core::{Access, WcStatus};
use bareverbs_in_process::ModelPlatform;
use connectx_model::Config as Card;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const PORT: u16 = 7174;
pub(super) const GSI_QKEY: u32 = 0x8001_0000;
/// The port spaces that connections are made in.
pub(super) const SPACES: [PortSpace; 2] = [PortSpace::Tcp, PortSpace::Ib];

/// Exponent of the ACK timeout by default: what Linux 6.12 derives from its packet life time, 16, for a
/// card whose ACK delay is shorter.
pub(super) const ACK_TIMEOUT: u8 = 17;

/// The static neighbours of the scene.
pub(super) struct Neighbours([[u8; 6]; 2]);

impl Neighbours {
    fn find(ip: IpAddr) -> Option<(Address, usize)> {
        [Address::Ipv4, Address::Ipv6, Address::TaggedIpv4]
            .into_iter()
            .find_map(|address| {
                let node = (0..2).find(|&node| address.ip(node) == ip)?;
                Some((address, node))
            })
    }
}

impl Subnet for Neighbours {}

impl rdma::Neighbours for Neighbours {
    fn resolve(&mut self, _: Duration, _: IpAddr, destination: IpAddr) -> Resolution {
        match Self::find(destination) {
            Some((address, node)) => Resolution::Found(Neighbour {
                vlan: address.vlan(),
                ..Neighbour::new(self.0[node])
            }),
            None => Resolution::NoRoute,
        }
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        let (address, node) = Self::find(destination)?;
        Some(address.ip(1 - node))
    }
}

pub(super) type Cm = RdmaCm<'static, 'static, ModelPlatform, Neighbours>;

pub(super) fn text_of(error: RdmaError) -> String {
    error.to_string()
}

pub(super) fn manager(node: Node, index: usize, macs: [[u8; 6]; 2]) -> Result<Cm, String> {
    let storage = Box::leak(Box::new(rdma::Resources::<
        Ids<ModelPlatform, 64>,
        Channels<2>,
    >::new()));
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        ..rdma::Config::new(0x5eed + index as u64)
    };
    RdmaCm::new(node, Neighbours(macs), config, storage.storage()).map_err(text_of)
}

/// The parameters of a connection: of its request and of its reply.
#[derive(Clone)]
pub(super) struct Variant {
    pub(super) space: PortSpace,
    pub(super) address: Address,
    pub(super) tos: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) request: &'static [u8],
    pub(super) reply: &'static [u8],
    /// Responder resources, initiator depth: the active side's, then the passive side's.
    pub(super) depths: [(u8, u8); 2],
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: [u8; 2],
    pub(super) flow_control: bool,
    pub(super) srq: bool,
    pub(super) timers: Option<bareverbs_cm::engine::Timers>,
}

impl Variant {
    pub(super) fn new(address: Address) -> Self {
        Self {
            space: PortSpace::Tcp,
            address,
            tos: 0,
            ack_timeout: None,
            request: b"",
            reply: b"",
            depths: [(4, 3), (2, 4)],
            retry_count: 7,
            rnr_retry_count: [7, 7],
            flow_control: false,
            srq: false,
            timers: None,
        }
    }

    pub(super) fn param(&self, side: usize) -> ConnParam<'_> {
        ConnParam {
            private_data: [self.request, self.reply][side],
            responder_resources: self.depths[side].0,
            initiator_depth: self.depths[side].1,
            flow_control: self.flow_control,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count[side],
            srq: self.srq,
            ..ConnParam::default()
        }
    }
}

/// Properties of an end of a connection that the driver knows before any of its messages is dissected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Learned {
    pub(super) comm_id: u32,
    pub(super) qpn: u32,
    /// First PSN that its QP expects, once it does.
    pub(super) expects: Option<u32>,
    pub(super) flow_label: u32,
    pub(super) timeout: u8,
}

/// Two managers, and the messages that they traced as sent.
pub(super) struct Managers {
    pub(super) cms: [Cm; 2],
    pub(super) channels: [ChannelId; 2],
    pub(super) sent: [Vec<TraceEntry>; 2],
    /// PSN of the next datagram of each QP1.
    pub(super) psns: [u32; 2],
    /// One in each of [`SPACES`].
    pub(super) listeners: Vec<(PortSpace, CmId)>,
    pub(super) guids: [u64; 2],
}

/// A connection in the making.
pub(super) struct Ends {
    pub(super) ids: [CmId; 2],
    pub(super) known: [Learned; 2],
    pub(super) port: u16,
    pub(super) start: usize,
}

impl Managers {
    pub(super) fn new(scene: &Scene) -> Result<Self, String> {
        let mut cms = [
            manager(scene.nodes[0], 0, scene.macs)?,
            manager(scene.nodes[1], 1, scene.macs)?,
        ];
        let channels = [
            cms[0].create_event_channel().map_err(text_of)?,
            cms[1].create_event_channel().map_err(text_of)?,
        ];
        let mut listeners = Vec::new();
        for space in SPACES {
            let listener = cms[1]
                .create_id(Some(channels[1]), 0, space)
                .map_err(text_of)?;
            let any = SocketAddr::new(IpAddr::from([0u16; 8]), PORT);
            cms[1].bind_addr(listener, any).map_err(text_of)?;
            cms[1].listen(listener, 4).map_err(text_of)?;
            listeners.push((space, listener));
        }
        Ok(Self {
            cms,
            channels,
            sent: Default::default(),
            psns: [0; 2],
            listeners,
            guids: [Card::new(1).node_guid, Card::new(2).node_guid],
        })
    }

    pub(super) fn poll(&mut self) -> Result<(), String> {
        for (node, cm) in self.cms.iter_mut().enumerate() {
            cm.poll(cm.now()).map_err(text_of)?;
            while let Some(entry) = cm.next_trace() {
                if entry.sent {
                    self.sent[node].push(entry);
                }
            }
        }
        Ok(())
    }

    pub(super) fn event(
        &mut self,
        scene: &mut Scene,
        node: usize,
        kind: EventType,
    ) -> Result<CmEvent, String> {
        let event = scene.wait(&format!("{kind:?} of node {node}"), |_| {
            self.poll()?;
            self.cms[node]
                .try_get_cm_event(self.channels[node])
                .map_err(text_of)
        })?;
        if event.event == kind {
            Ok(event)
        } else {
            Err(format!("node {node}: {event:?}, not {kind:?}"))
        }
    }

    /// The only message of this kind that a node sent since the last step, as its trace has it.
    pub(super) fn traced(&self, node: usize, message: Attribute) -> Result<TraceEntry, String> {
        self.sent[node]
            .iter()
            .find(|entry| entry.message == message)
            .copied()
            .ok_or_else(|| format!("node {node} has no {message} in its trace"))
    }

    pub(super) fn known(&mut self, node: usize, id: CmId) -> Result<Learned, String> {
        let endpoint = self.cms[node].endpoint(id).map_err(text_of)?;
        let queried = endpoint.qp.query().map_err(|e| e.to_string())?;
        Ok(Learned {
            comm_id: 0,
            qpn: endpoint.qp.qpn().number(),
            expects: (queried.attr.qp_state == QpState::Rts).then_some(queried.attr.rq_psn),
            flow_label: queried.attr.ah_attr.flow_label,
            timeout: queried.attr.timeout,
        })
    }

    pub(super) fn qp<'a>() -> QpInit<'a, 'static, ModelPlatform> {
        QpInit {
            cap: QpCap {
                max_send_wr: 8,
                max_recv_wr: 8,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpInit::default()
        }
    }

    /// An id of node 0 with a QP, ready to connect.
    pub(super) fn client(
        &mut self,
        scene: &mut Scene,
        variant: &Variant,
        port: u16,
    ) -> Result<CmId, String> {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 0, variant.space)
            .map_err(text_of)?;
        let mut options = vec![IdOption::Tos(variant.tos)];
        options.extend(variant.ack_timeout.map(IdOption::AckTimeout));
        options.extend(variant.timers.map(IdOption::CmTimers));
        for option in options {
            self.cms[0].set_option(id, option).map_err(text_of)?;
        }
        let to = SocketAddr::new(variant.address.ip(1), port);
        self.cms[0]
            .resolve_addr(id, None, to, SECOND)
            .map_err(text_of)?;
        self.event(scene, 0, EventType::AddrResolved)?;
        self.cms[0].resolve_route(id, SECOND).map_err(text_of)?;
        self.event(scene, 0, EventType::RouteResolved)?;
        self.cms[0]
            .create_qp(id, None, &mut Self::qp())
            .map_err(text_of)?;
        for sent in &mut self.sent {
            sent.clear();
        }
        Ok(id)
    }

    /// Requests a connection and waits until the peer has the request.
    pub(super) fn ask(&mut self, scene: &mut Scene, variant: &Variant) -> Result<Ends, String> {
        let ours = self.client(scene, variant, PORT)?;
        let start = scene.frames();
        self.cms[0]
            .connect(ours, Some(&variant.param(0)))
            .map_err(text_of)?;
        let request = self.event(scene, 1, EventType::ConnectRequest)?;
        let listener = request.listen_id.map(|id| (variant.space, id));
        if !listener.is_some_and(|listener| self.listeners.contains(&listener))
            || &request.private_data()[..variant.request.len()] != variant.request
        {
            return Err(format!("the request came otherwise: {request:?}"));
        }
        let port = self.cms[0].get_src_port(ours).map_err(text_of)?;
        let mut known = [self.known(0, ours)?, Learned::default()];
        known[0].comm_id = self.traced(0, Attribute::Req)?.local_comm_id;
        Ok(Ends {
            ids: [ours, request.id],
            known,
            port,
            start,
        })
    }

    pub(super) fn answer(
        &mut self,
        scene: &mut Scene,
        variant: &Variant,
        ends: &mut Ends,
    ) -> Result<(), String> {
        let theirs = ends.ids[1];
        self.cms[1]
            .create_qp(theirs, None, &mut Self::qp())
            .map_err(text_of)?;
        self.cms[1]
            .accept(theirs, Some(&variant.param(1)))
            .map_err(text_of)?;
        let established = self.event(scene, 0, EventType::Established)?;
        if &established.private_data()[..variant.reply.len()] != variant.reply {
            return Err(format!("the reply came otherwise: {established:?}"));
        }
        self.event(scene, 1, EventType::Established)?;
        // Both QPs are through all their states now, and what was asked for is what they have.
        for node in 0..2 {
            let comm_id = ends.known[node].comm_id;
            ends.known[node] = self.known(node, ends.ids[node])?;
            ends.known[node].comm_id = comm_id;
        }
        ends.known[1].comm_id = self.traced(1, Attribute::Rep)?.local_comm_id;
        let timeout = ends.known[0].timeout;
        if timeout != variant.ack_timeout.unwrap_or(ACK_TIMEOUT) {
            return Err(format!("the QP's ACK timeout is {timeout}"));
        }
        Ok(())
    }

    /// Ends a connection from both sides; node `from` asks.
    pub(super) fn part(
        &mut self,
        scene: &mut Scene,
        ends: &Ends,
        from: usize,
    ) -> Result<(), String> {
        self.cms[from].disconnect(ends.ids[from]).map_err(text_of)?;
        self.event(scene, 1 - from, EventType::Disconnected)?;
        self.event(scene, from, EventType::Disconnected)?;
        for node in 0..2 {
            self.cms[node].disconnect(ends.ids[node]).map_err(text_of)?;
        }
        for node in [from, 1 - from] {
            self.event(scene, node, EventType::TimewaitExit)?;
        }
        Ok(())
    }

    pub(super) fn destroy_ids(&mut self, ids: &[(usize, CmId)]) -> Result<(), String> {
        for &(node, id) in ids {
            self.cms[node].destroy_id(id).map_err(text_of)?;
        }
        Ok(())
    }

    /// A message each way, a READ and a WRITE, on the connection's QPs.
    pub(super) fn talk(
        &mut self,
        scene: &mut Scene,
        variant: &Variant,
        ends: &Ends,
    ) -> Result<(), String> {
        let mut path = scene.path(variant.address);
        path.traffic_class = variant.tos;
        path.flow_label = ends.known[0].flow_label;
        path.source_port = Some(source_port(path.flow_label));
        let mut flows = [0, 1].map(|from: usize| Flow {
            service: Service::Rc,
            path: path.clone(),
            from,
            remote_qpn: ends.known[1 - from].qpn,
            local_qpn: ends.known[from].qpn,
            mtu: 4096,
            // A common mistake: the PSN in a message is the one that its receiver has to start with.
            psn: ends.known[1 - from].expects.unwrap_or_default(),
            msn: 0,
            solicited: false,
        });
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 3 + (i >> 8)) as u8).collect();
        for from in [0, 1] {
            let what = format!("{:?}: SEND of node {from} on a connection", variant.address);
            let len = 300 + 4000 * from;
            let source = self.cms[from]
                .reg_msgs(ends.ids[from], len)
                .map_err(text_of)?;
            let sink = self.cms[1 - from]
                .reg_msgs(ends.ids[1 - from], len)
                .map_err(text_of)?;
            source.copy_in(0, &data[..len]).map_err(|e| e.to_string())?;
            let [message, room] =
                [&source, &sink].map(|buffer| buffer.slice(..).map_err(|e| e.to_string()));
            self.cms[1 - from]
                .post_recv(ends.ids[1 - from], 1, room?)
                .map_err(text_of)?;
            let start = scene.frames();
            self.cms[from]
                .post_send(ends.ids[from], 2, message?, SendFlags::SIGNALED)
                .map_err(text_of)?;
            let end = scene.world.now() + SECOND;
            let sent = self.cms[from]
                .get_send_comp_until(ends.ids[from], end)
                .map_err(text_of)?;
            let got = self.cms[1 - from]
                .get_recv_comp_until(ends.ids[1 - from], end)
                .map_err(text_of)?;
            if [sent.status, got.status] != [WcStatus::Success; 2] {
                return Err(format!("{what}: {} and {}", sent.status, got.status));
            }
            scene.settle();
            let expected = flows[from].whole(Operation::Send, &data[..len], Target::default(), 0);
            scene.note(what, start, expected);
        }
        let pd = self.cms[1].pd(ends.ids[1]).map_err(text_of)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let far = pd
            .alloc_buffer(data.len(), access)
            .map_err(|e| e.to_string())?;
        far.copy_in(0, &data).map_err(|e| e.to_string())?;
        let near = self.cms[0]
            .reg_write(ends.ids[0], data.len())
            .map_err(text_of)?;
        let target = Target {
            addr: far.addr(),
            rkey: far.rkey().0,
        };
        for operation in [Operation::Read, Operation::Write] {
            let what = format!("{:?}: {operation:?} on a connection", variant.address);
            let start = scene.frames();
            let (id, flags) = (ends.ids[0], SendFlags::SIGNALED);
            let local = near.slice(..data.len()).map_err(|e| e.to_string())?;
            let posted = if operation == Operation::Read {
                self.cms[0].post_read(id, 3, local, flags, far.remote(0))
            } else {
                self.cms[0].post_write(id, 4, local, flags, far.remote(0))
            };
            posted.map_err(text_of)?;
            let end = scene.world.now() + SECOND;
            let done = self.cms[0].get_send_comp_until(id, end).map_err(text_of)?;
            if done.status != WcStatus::Success {
                return Err(format!("{what}: {}", done.status));
            }
            scene.settle();
            let expected = flows[0].whole(operation, &data, target, 0);
            scene.note(what, start, expected);
        }
        Ok(())
    }
}
