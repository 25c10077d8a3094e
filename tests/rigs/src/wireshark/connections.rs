//! Connections by the RDMA CM: every message that it sends, with everything in it, when all goes well and when it does not.

use super::expect::{Expected, Field, Value, bytes, number, source_port, text};
use super::packets::{Flow, Operation, Service, Target};
use super::scene::{Address, Node, Scene};
use super::tshark::Frame;
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{
    self, ChannelId, CmEvent, CmId, ConnParam, EventType, IdOption, Neighbour, PortSpace, QpInit,
    RdmaCm, RdmaError, Resolution, Resolver, SendFlags, TraceEntry,
};
use bareverbs_core::qp::{QpCap, QpState};
use bareverbs_core::{Access, WcStatus};
use bareverbs_in_process::ModelPlatform;
use connectx_model::Config as Card;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7174;
const GSI_QKEY: u32 = 0x8001_0000;
/// Where the service IDs of `RDMA_PS_TCP` begin.
const TCP: u64 = 0x0106_0000;

/// Exponent of the ACK timeout when nobody wants another: what Linux 6.12 derives from its packet life time, 16, for a
/// card whose ACK delay is shorter.
const ACK_TIMEOUT: u8 = 17;

/// The static neighbours of the scene.
struct Neighbours([[u8; 6]; 2]);

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

impl Resolver for Neighbours {
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

type Cm = RdmaCm<'static, 'static, ModelPlatform, Neighbours>;

fn say(error: RdmaError) -> String {
    error.to_string()
}

fn manager(node: Node, index: usize, macs: [[u8; 6]; 2]) -> Result<Cm, String> {
    let storage = Box::leak(Box::new(rdma::Resources::<ModelPlatform, 64, 2>::new()));
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        ..rdma::Config::new(0x5eed + index as u64)
    };
    RdmaCm::new(node, Neighbours(macs), config, storage.storage()).map_err(say)
}

/// How a connection is asked for and answered.
#[derive(Clone)]
struct Wishes {
    address: Address,
    tos: u8,
    ack_timeout: Option<u8>,
    request: &'static [u8],
    reply: &'static [u8],
    /// Responder resources, initiator depth: the active side's, then the passive side's.
    depths: [(u8, u8); 2],
    retry_count: u8,
    rnr_retry_count: [u8; 2],
    flow_control: bool,
    srq: bool,
    timers: Option<bareverbs_cm::engine::Timers>,
}

impl Wishes {
    fn new(address: Address) -> Self {
        Self {
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

    fn param(&self, side: usize) -> ConnParam<'_> {
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

/// What is known of an end of a connection, from the driver, before any of its messages are looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    comm_id: u32,
    qpn: u32,
    /// First PSN that its QP expects, once it does.
    expects: Option<u32>,
    flow_label: u32,
    timeout: u8,
}

/// The PSN that a REQ or REP tells the other end to start with: the one that this end's QP expects. A QP that never got
/// that far expects none, and any will do.
fn starting_psn(name: &'static str, known: &Known) -> Field {
    match known.expects {
        Some(psn) => number(name, psn),
        None => (name, Value::Within(0, 0xff_ffff)),
    }
}

/// Two managers, and the messages that they say they sent.
struct Managers {
    cms: [Cm; 2],
    channels: [ChannelId; 2],
    sent: [Vec<TraceEntry>; 2],
    /// PSN of the next datagram of each QP1.
    psns: [u32; 2],
    listener: CmId,
    guids: [u64; 2],
}

/// A connection in the making.
struct Ends {
    ids: [CmId; 2],
    known: [Known; 2],
    port: u16,
    start: usize,
}

impl Managers {
    fn new(scene: &Scene) -> Result<Self, String> {
        let mut cms = [
            manager(scene.nodes[0], 0, scene.macs)?,
            manager(scene.nodes[1], 1, scene.macs)?,
        ];
        let channels = [
            cms[0].create_event_channel().map_err(say)?,
            cms[1].create_event_channel().map_err(say)?,
        ];
        let listener = cms[1]
            .create_id(Some(channels[1]), 0, PortSpace::Tcp)
            .map_err(say)?;
        let any = SocketAddr::new(IpAddr::from([0u16; 8]), PORT);
        cms[1].bind_addr(listener, any).map_err(say)?;
        cms[1].listen(listener, 4).map_err(say)?;
        Ok(Self {
            cms,
            channels,
            sent: Default::default(),
            psns: [0; 2],
            listener,
            guids: [Card::new(1).node_guid, Card::new(2).node_guid],
        })
    }

    fn poll(&mut self) -> Result<(), String> {
        for (node, cm) in self.cms.iter_mut().enumerate() {
            cm.poll(cm.now()).map_err(say)?;
            while let Some(entry) = cm.next_trace() {
                if entry.sent {
                    self.sent[node].push(entry);
                }
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        scene: &mut Scene,
        node: usize,
        kind: EventType,
    ) -> Result<CmEvent, String> {
        let event = scene.wait(&format!("{kind:?} of node {node}"), |_| {
            self.poll()?;
            self.cms[node]
                .try_get_cm_event(self.channels[node])
                .map_err(say)
        })?;
        if event.event == kind {
            Ok(event)
        } else {
            Err(format!("node {node}: {event:?}, not {kind:?}"))
        }
    }

    /// The only message of this kind that a node sent since the last step, as its trace has it.
    fn traced(&self, node: usize, message: Attribute) -> Result<TraceEntry, String> {
        self.sent[node]
            .iter()
            .find(|entry| entry.message == message)
            .copied()
            .ok_or_else(|| format!("node {node} has no {message} in its trace"))
    }

    fn known(&mut self, node: usize, id: CmId) -> Result<Known, String> {
        let endpoint = self.cms[node].endpoint(id).map_err(say)?;
        let queried = endpoint.qp.query().map_err(|e| e.to_string())?;
        Ok(Known {
            comm_id: 0,
            qpn: endpoint.qp.qpn().number(),
            expects: (queried.attr.qp_state == QpState::Rts).then_some(queried.attr.rq_psn),
            flow_label: queried.attr.ah_attr.flow_label,
            timeout: queried.attr.timeout,
        })
    }

    fn qp<'a>() -> QpInit<'a, 'static, ModelPlatform> {
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
    fn client(&mut self, scene: &mut Scene, wishes: &Wishes, port: u16) -> Result<CmId, String> {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 0, PortSpace::Tcp)
            .map_err(say)?;
        let mut options = vec![IdOption::Tos(wishes.tos)];
        options.extend(wishes.ack_timeout.map(IdOption::AckTimeout));
        options.extend(wishes.timers.map(IdOption::CmTimers));
        for option in options {
            self.cms[0].set_option(id, option).map_err(say)?;
        }
        let to = SocketAddr::new(wishes.address.ip(1), port);
        self.cms[0]
            .resolve_addr(id, None, to, SECOND)
            .map_err(say)?;
        self.event(scene, 0, EventType::AddrResolved)?;
        self.cms[0].resolve_route(id, SECOND).map_err(say)?;
        self.event(scene, 0, EventType::RouteResolved)?;
        self.cms[0]
            .create_qp(id, None, &mut Self::qp())
            .map_err(say)?;
        for sent in &mut self.sent {
            sent.clear();
        }
        Ok(id)
    }

    /// Headers of a datagram between the QP1s.
    fn datagram(
        &mut self,
        scene: &Scene,
        wishes: &Wishes,
        from: usize,
        message: Attribute,
    ) -> Expected {
        let mut way = scene.way(wishes.address);
        way.traffic_class = wishes.tos;
        let mut fields = way.fields(from);
        // The flow label of what carries the messages is nobody's business.
        fields.retain(|(name, _)| *name != "ipv6.flow");
        fields.extend([
            number("infiniband.bth.opcode", 0x64u8),
            number("infiniband.bth.destqp", 1u8),
            number("infiniband.bth.p_key", 0xffffu16),
            number("infiniband.bth.padcnt", 0u8),
            number("infiniband.bth.psn", self.psns[from]),
            number("infiniband.deth.q_key", GSI_QKEY),
            number("infiniband.deth.srcqp", 1u8),
            number("infiniband.mad.baseversion", 1u8),
            number("infiniband.mad.mgmtclass", 7u8),
            number("infiniband.mad.classversion", 2u8),
            number("infiniband.mad.method", 3u8),
            number("infiniband.mad.status", 0u8),
            number("infiniband.mad.attributeid", message as u16),
            number("infiniband.mad.attributemodifier", 0u8),
            ("_ws.malformed", Value::Absent),
        ]);
        self.psns[from] += 1;
        Expected { from, fields }
    }

    fn message(
        &mut self,
        scene: &Scene,
        wishes: &Wishes,
        from: usize,
        message: Attribute,
        fields: Vec<Field>,
    ) -> Expected {
        let mut expected = self.datagram(scene, wishes, from, message);
        expected.fields.extend(fields);
        expected
    }

    fn req(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends, to: u16) -> Expected {
        let (us, param) = (&ends.known[0], wishes.param(0));
        let timers = wishes.timers.unwrap_or_default();
        let mut fields = vec![
            number("infiniband.cm.req", us.comm_id),
            number("infiniband.cm.req.serviceid", TCP + u64::from(to)),
            number("infiniband.cm.req.serviceid.protocol", 6u8),
            number("infiniband.cm.req.serviceid.dport", to),
            number("infiniband.cm.req.localcaguid", self.guids[0]),
            number("infiniband.cm.req.localqkey", 0u8),
            number("infiniband.cm.req.localqpn", us.qpn),
            number("infiniband.cm.req.responderres", param.responder_resources),
            number("infiniband.cm.req.initdepth", param.initiator_depth),
            number("infiniband.cm.req.localeecn", 0u8),
            number("infiniband.cm.req.remoteeecn", 0u8),
            number("infiniband.cm.req.remoteresptout", timers.remote_response),
            number("infiniband.cm.req.localresptout", timers.local_response),
            number("infiniband.cm.req.maxcmretr", timers.max_retries),
            number("infiniband.cm.req.transpsvctype", 0u8),
            number("infiniband.cm.req.ext_transport", 0u8),
            number("infiniband.cm.req.e2eflowctrl", param.flow_control),
            starting_psn("infiniband.cm.req.startpsn", us),
            number("infiniband.cm.req.retrcount", param.retry_count),
            number("infiniband.cm.req.rnrretrcount", param.rnr_retry_count),
            number("infiniband.cm.req.pkey", 0xffffu16),
            // 4096 bytes fit into the port's frames.
            number("infiniband.cm.req.pppmtu", 5u8),
            number("infiniband.cm.req.rdcexist", 0u8),
            // The QP has none, whatever the parameters say.
            number("infiniband.cm.req.srq", false),
            number("infiniband.cm.req.prim_locallid", 0xffffu16),
            number("infiniband.cm.req.prim_remotelid", 0xffffu16),
            number("infiniband.cm.req.prim_tfcclass", wishes.tos),
            number("infiniband.cm.req.prim_hoplim", 64u8),
            number("infiniband.cm.req.prim_sl", 0u8),
            number("infiniband.cm.req.prim_subnetlocal", 0u8),
            number("infiniband.cm.req.alt_locallid", 0u8),
            number("infiniband.cm.req.alt_remotelid", 0u8),
            bytes("infiniband.cm.req.alt_localgid", &[], 16),
            bytes("infiniband.cm.req.alt_remotegid", &[], 16),
            number(
                "infiniband.cm.req.prim_localacktout",
                wishes.ack_timeout.unwrap_or(ACK_TIMEOUT),
            ),
            number("infiniband.cm.req.ip_cm.majv", 0u8),
            number("infiniband.cm.req.ip_cm.minv", 0u8),
            number("infiniband.cm.req.ip_cm.sport", ends.port),
            bytes("infiniband.cm.req.ip_cm.private", param.private_data, 56),
        ];
        let (source, destination) = (wishes.address.ip(0), wishes.address.ip(1));
        let names = match source {
            IpAddr::V4(_) => [
                "infiniband.cm.req.prim_localgid_ipv4",
                "infiniband.cm.req.prim_remotegid_ipv4",
                "infiniband.cm.req.ip_cm.sip4",
                "infiniband.cm.req.ip_cm.dip4",
            ],
            IpAddr::V6(_) => [
                "infiniband.cm.req.prim_localgid",
                "infiniband.cm.req.prim_remotegid",
                "infiniband.cm.req.ip_cm.sip6",
                "infiniband.cm.req.ip_cm.dip6",
            ],
        };
        for (name, address) in names
            .into_iter()
            .zip([source, destination, source, destination])
        {
            fields.push(text(name, address));
        }
        let version = if source.is_ipv4() { 4u8 } else { 6 };
        fields.push(number("infiniband.cm.req.ip_cm.ipv", version));
        self.message(scene, wishes, 0, Attribute::Req, fields)
    }

    fn rep(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends) -> Expected {
        let (us, param) = (&ends.known[1], wishes.param(1));
        let fields = vec![
            number("infiniband.cm.rep", us.comm_id),
            number("infiniband.cm.rep.remotecommid", ends.known[0].comm_id),
            number("infiniband.cm.rep.localqkey", 0u8),
            number("infiniband.cm.rep.localqpn", us.qpn),
            number("infiniband.cm.rep.localeecn", 0u8),
            starting_psn("infiniband.cm.rep.startpsn", us),
            number("infiniband.cm.rep.respres", param.responder_resources),
            number("infiniband.cm.rep.initdepth", param.initiator_depth),
            // What the model's capabilities say.
            number(
                "infiniband.cm.rep.tgtackdelay",
                Card::new(2).general.local_ca_ack_delay(),
            ),
            number("infiniband.cm.rep.failoveracc", 0u8),
            number("infiniband.cm.rep.e2eflowctrl", param.flow_control),
            number("infiniband.cm.rep.rnrretrcount", param.rnr_retry_count),
            number("infiniband.cm.rep.srq", false),
            number("infiniband.cm.rep.localcaguid", self.guids[1]),
            bytes("infiniband.cm.rep.private", param.private_data, 196),
        ];
        self.message(scene, wishes, 1, Attribute::Rep, fields)
    }

    fn rtu(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends) -> Expected {
        let fields = vec![
            number("infiniband.cm.rtu.localcommid", ends.known[0].comm_id),
            number("infiniband.cm.rtu.remotecommid", ends.known[1].comm_id),
            bytes("infiniband.cm.rtu.private", &[], 224),
        ];
        self.message(scene, wishes, 0, Attribute::Rtu, fields)
    }

    fn dreq(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends, from: usize) -> Expected {
        let fields = vec![
            number("infiniband.cm.dreq.localcommid", ends.known[from].comm_id),
            number(
                "infiniband.cm.dreq.remotecommid",
                ends.known[1 - from].comm_id,
            ),
            number("infiniband.cm.req.remoteqpneecn", ends.known[1 - from].qpn),
            bytes("infiniband.cm.dreq.private", &[], 220),
        ];
        self.message(scene, wishes, from, Attribute::Dreq, fields)
    }

    fn drep(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends, from: usize) -> Expected {
        let fields = vec![
            number("infiniband.cm.drsp.localcommid", ends.known[from].comm_id),
            number(
                "infiniband.cm.drsp.remotecommid",
                ends.known[1 - from].comm_id,
            ),
            bytes("infiniband.cm.drsp.private", &[], 224),
        ];
        self.message(scene, wishes, from, Attribute::Drep, fields)
    }

    /// A rejection by node 1, which answers a REQ.
    fn rej(
        &mut self,
        scene: &Scene,
        wishes: &Wishes,
        ids: [u32; 2],
        reason: u16,
        private: &[u8],
    ) -> Expected {
        let fields = vec![
            number("infiniband.cm.rej.localcommid", ids[1]),
            number("infiniband.cm.rej.remotecommid", ids[0]),
            number("infiniband.cm.rej.msgrej", 0u8),
            number("infiniband.cm.rej.rejinfolen", 0u8),
            number("infiniband.cm.rej.reason", reason),
            bytes("infiniband.cm.rej.ari", &[], 72),
            bytes("infiniband.cm.rej.private", private, 148),
        ];
        self.message(scene, wishes, 1, Attribute::Rej, fields)
    }

    /// A rejection by node 0, which does not want an answer to its REQ any more: "timeout", with its GUID.
    fn abandon(&mut self, scene: &Scene, wishes: &Wishes, ours: u32) -> Expected {
        let guid = self.guids[0].to_be_bytes();
        let fields = vec![
            number("infiniband.cm.rej.localcommid", ours),
            number("infiniband.cm.rej.remotecommid", 0u8),
            number("infiniband.cm.rej.msgrej", 2u8),
            number("infiniband.cm.rej.rejinfolen", 8u8),
            number("infiniband.cm.rej.reason", 4u8),
            bytes("infiniband.cm.rej.ari", &guid, 72),
            bytes("infiniband.cm.rej.private", &[], 148),
        ];
        self.message(scene, wishes, 0, Attribute::Rej, fields)
    }

    /// A receipt for a REQ by node 1. tshark names it and shows its bytes: both IDs, the message (REQ), the time.
    fn mra(&mut self, scene: &Scene, wishes: &Wishes, ends: &Ends, timeout: u8) -> Expected {
        let mut data = [0; 10];
        data[..4].copy_from_slice(&ends.known[1].comm_id.to_be_bytes());
        data[4..8].copy_from_slice(&ends.known[0].comm_id.to_be_bytes());
        data[9] = timeout << 3;
        let fields = vec![bytes("infiniband.mad.data", &data, 232)];
        self.message(scene, wishes, 1, Attribute::Mra, fields)
    }

    /// Asks for a connection and lets the other side hear of it.
    fn ask(&mut self, scene: &mut Scene, wishes: &Wishes) -> Result<Ends, String> {
        let ours = self.client(scene, wishes, PORT)?;
        let start = scene.frames();
        self.cms[0]
            .connect(ours, Some(&wishes.param(0)))
            .map_err(say)?;
        let request = self.event(scene, 1, EventType::ConnectRequest)?;
        if request.listen_id != Some(self.listener)
            || &request.private_data()[..wishes.request.len()] != wishes.request
        {
            return Err(format!("the request came otherwise: {request:?}"));
        }
        let port = self.cms[0].get_src_port(ours).map_err(say)?;
        let mut known = [self.known(0, ours)?, Known::default()];
        known[0].comm_id = self.traced(0, Attribute::Req)?.local_comm_id;
        Ok(Ends {
            ids: [ours, request.id],
            known,
            port,
            start,
        })
    }

    fn answer(
        &mut self,
        scene: &mut Scene,
        wishes: &Wishes,
        ends: &mut Ends,
    ) -> Result<(), String> {
        let theirs = ends.ids[1];
        self.cms[1]
            .create_qp(theirs, None, &mut Self::qp())
            .map_err(say)?;
        self.cms[1]
            .accept(theirs, Some(&wishes.param(1)))
            .map_err(say)?;
        let established = self.event(scene, 0, EventType::Established)?;
        if &established.private_data()[..wishes.reply.len()] != wishes.reply {
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
        if timeout != wishes.ack_timeout.unwrap_or(ACK_TIMEOUT) {
            return Err(format!("the QP's ACK timeout is {timeout}"));
        }
        Ok(())
    }

    /// Ends a connection from both sides; node `from` asks.
    fn part(&mut self, scene: &mut Scene, ends: &Ends, from: usize) -> Result<(), String> {
        self.cms[from].disconnect(ends.ids[from]).map_err(say)?;
        self.event(scene, 1 - from, EventType::Disconnected)?;
        self.event(scene, from, EventType::Disconnected)?;
        for node in 0..2 {
            self.cms[node].disconnect(ends.ids[node]).map_err(say)?;
        }
        for node in [from, 1 - from] {
            self.event(scene, node, EventType::TimewaitExit)?;
        }
        Ok(())
    }

    fn forget(&mut self, ids: &[(usize, CmId)]) -> Result<(), String> {
        for &(node, id) in ids {
            self.cms[node].destroy_id(id).map_err(say)?;
        }
        Ok(())
    }

    /// A message each way, a READ and a WRITE, on the connection's QPs.
    fn talk(&mut self, scene: &mut Scene, wishes: &Wishes, ends: &Ends) -> Result<(), String> {
        let mut way = scene.way(wishes.address);
        way.traffic_class = wishes.tos;
        way.flow_label = ends.known[0].flow_label;
        way.source_port = Some(source_port(way.flow_label));
        let mut flows = [0, 1].map(|from: usize| Flow {
            service: Service::Rc,
            way: way.clone(),
            from,
            remote_qpn: ends.known[1 - from].qpn,
            local_qpn: ends.known[from].qpn,
            mtu: 4096,
            // The classic mistake: the PSN in a message is the one that its receiver has to start with.
            psn: ends.known[1 - from].expects.unwrap_or_default(),
            msn: 0,
            solicited: false,
        });
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 3 + (i >> 8)) as u8).collect();
        for from in [0, 1] {
            let what = format!("{:?}: SEND of node {from} on a connection", wishes.address);
            let len = 300 + 4000 * from;
            let source = self.cms[from].reg_msgs(ends.ids[from], len).map_err(say)?;
            let sink = self.cms[1 - from]
                .reg_msgs(ends.ids[1 - from], len)
                .map_err(say)?;
            source.copy_in(0, &data[..len]).map_err(|e| e.to_string())?;
            self.cms[1 - from]
                .post_recv(ends.ids[1 - from], 1, &sink, 0, len)
                .map_err(say)?;
            let start = scene.frames();
            self.cms[from]
                .post_send(ends.ids[from], 2, &source, 0, len, SendFlags::SIGNALED)
                .map_err(say)?;
            let end = scene.world.now() + SECOND;
            let sent = self.cms[from]
                .get_send_comp_until(ends.ids[from], end)
                .map_err(say)?;
            let got = self.cms[1 - from]
                .get_recv_comp_until(ends.ids[1 - from], end)
                .map_err(say)?;
            if [sent.status, got.status] != [WcStatus::Success; 2] {
                return Err(format!("{what}: {} and {}", sent.status, got.status));
            }
            scene.settle();
            let expected = flows[from].whole(Operation::Send, &data[..len], Target::default(), 0);
            scene.note(what, start, expected);
        }
        let pd = self.cms[1].pd(ends.ids[1]).map_err(say)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let far = pd
            .alloc_buffer(data.len(), access)
            .map_err(|e| e.to_string())?;
        far.copy_in(0, &data).map_err(|e| e.to_string())?;
        let near = self.cms[0]
            .reg_write(ends.ids[0], data.len())
            .map_err(say)?;
        let target = Target {
            addr: far.addr(),
            rkey: far.rkey().0,
        };
        for operation in [Operation::Read, Operation::Write] {
            let what = format!("{:?}: {operation:?} on a connection", wishes.address);
            let start = scene.frames();
            let (id, flags, len) = (ends.ids[0], SendFlags::SIGNALED, data.len());
            let posted = if operation == Operation::Read {
                self.cms[0].post_read(id, 3, &near, 0, len, flags, far.addr(), far.rkey())
            } else {
                self.cms[0].post_write(id, 4, &near, 0, len, flags, far.addr(), far.rkey())
            };
            posted.map_err(say)?;
            let end = scene.world.now() + SECOND;
            let done = self.cms[0].get_send_comp_until(id, end).map_err(say)?;
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

/// Checks that go over several messages at once: what has to be equal in which of them.
pub(super) struct Relations {
    what: String,
    /// Frames of the connection: in them a REP, an RTU and a REJ have the TID of the REQ, a DREP that of the DREQ.
    frames: std::ops::Range<usize>,
    flow_label: u32,
}

/// Everything below, one after the other.
pub(super) fn run(scene: &mut Scene) -> Result<Vec<Relations>, String> {
    let mut managers = Managers::new(scene)?;
    let mut relations = Vec::new();
    for wishes in variants() {
        relations.push(whole_life(scene, &mut managers, &wishes)?);
    }
    for lost in [
        Attribute::Req,
        Attribute::Rep,
        Attribute::Rtu,
        Attribute::Dreq,
        Attribute::Drep,
    ] {
        relations.push(message_lost(scene, &mut managers, lost)?);
    }
    relations.push(slow_answer(scene, &mut managers)?);
    relations.push(nobody_listens(scene, &mut managers)?);
    relations.push(refused(scene, &mut managers)?);
    relations.push(abandoned(scene, &mut managers)?);
    Ok(relations)
}

fn variants() -> Vec<Wishes> {
    let plain = Wishes::new(Address::Ipv4);
    let full = Wishes {
        tos: 0x68,
        ack_timeout: Some(13),
        request: b"private data of the asking side: fifty-six bytes of it..",
        reply: &[0xa7; 196],
        depths: [(1, 16), (16, 1)],
        retry_count: 3,
        rnr_retry_count: [5, 2],
        flow_control: true,
        srq: true,
        timers: Some(bareverbs_cm::engine::Timers {
            remote_response: 18,
            local_response: 17,
            max_retries: 9,
            ..Default::default()
        }),
        ..Wishes::new(Address::Ipv4)
    };
    vec![
        plain,
        Wishes {
            address: Address::Ipv6,
            ..full.clone()
        },
        full,
        Wishes {
            request: b"over IPv6",
            ..Wishes::new(Address::Ipv6)
        },
        Wishes {
            tos: 0x20,
            ..Wishes::new(Address::TaggedIpv4)
        },
    ]
}

/// Set up, used, torn down; even ones by the active side, odd ones by the passive side.
fn whole_life(
    scene: &mut Scene,
    managers: &mut Managers,
    wishes: &Wishes,
) -> Result<Relations, String> {
    let what = format!("{:?}, TOS {:#x}", wishes.address, wishes.tos);
    let mut ends = managers.ask(scene, wishes)?;
    managers.answer(scene, wishes, &mut ends)?;
    let expected = vec![
        managers.req(scene, wishes, &ends, PORT),
        managers.rep(scene, wishes, &ends),
        managers.rtu(scene, wishes, &ends),
    ];
    scene.note(format!("{what}: REQ, REP, RTU"), ends.start, expected);
    managers.talk(scene, wishes, &ends)?;
    let from = usize::from(wishes.address == Address::Ipv6);
    let start = scene.frames();
    managers.part(scene, &ends, from)?;
    let expected = vec![
        managers.dreq(scene, wishes, &ends, from),
        managers.drep(scene, wishes, &ends, 1 - from),
    ];
    scene.note(format!("{what}: DREQ, DREP"), start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

/// Offset of the BTH in an untagged RoCE v2 frame over IPv4.
const BTH: usize = 14 + 20 + 8;

fn carries(frame: &[u8], message: Attribute) -> bool {
    frame.get(BTH) == Some(&0x64)
        && frame.get(BTH + 36..BTH + 38) == Some(&(message as u16).to_be_bytes()[..])
}

/// One message of the handshake is lost: which ones come again.
fn message_lost(
    scene: &mut Scene,
    managers: &mut Managers,
    lost: Attribute,
) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = format!("{lost} lost");
    scene.lose(move |frame| carries(frame, lost));
    let mut ends = managers.ask(scene, &wishes)?;
    managers.answer(scene, &wishes, &mut ends)?;
    managers.part(scene, &ends, 0)?;
    // A repeated message has everything that the first one had, and the next PSN. How often each one goes out:
    let [req, rep, rtu, dreq, drep] = match lost {
        Attribute::Req => [2, 1, 1, 1, 1],
        // Both ends wait equally long. The one repeats its REQ, which the other answers; the other repeats its REP by
        // itself; and each REP gets its RTU.
        Attribute::Rep => [2, 3, 2, 1, 1],
        // The REP comes again because the RTU did not.
        Attribute::Rtu => [1, 2, 2, 1, 1],
        Attribute::Dreq => [1, 1, 1, 2, 1],
        Attribute::Drep => [1, 1, 1, 2, 2],
        _ => [1; 5],
    };
    let mut expected = Vec::new();
    expected.extend((0..req).map(|_| managers.req(scene, &wishes, &ends, PORT)));
    expected.extend((0..rep).map(|_| managers.rep(scene, &wishes, &ends)));
    expected.extend((0..rtu).map(|_| managers.rtu(scene, &wishes, &ends)));
    expected.extend((0..dreq).map(|_| managers.dreq(scene, &wishes, &ends, 0)));
    expected.extend((0..drep).map(|_| managers.drep(scene, &wishes, &ends, 1)));
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

/// The passive side takes its time: the REQ comes again and is answered by an MRA, after which there is silence.
fn slow_answer(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "a slow answer".to_owned();
    let mut ends = managers.ask(scene, &wishes)?;
    let until = scene.world.now() + 3 * SECOND;
    scene.wait("three seconds", |scene| {
        managers.poll()?;
        Ok((scene.world.now() >= until).then_some(()))
    })?;
    managers.answer(scene, &wishes, &mut ends)?;
    managers.part(scene, &ends, 0)?;
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.req(scene, &wishes, &ends, PORT),
        // As Linux: service timeout 24.
        managers.mra(scene, &wishes, &ends, 24),
        managers.rep(scene, &wishes, &ends),
        managers.rtu(scene, &wishes, &ends),
        managers.dreq(scene, &wishes, &ends, 0),
        managers.drep(scene, &wishes, &ends, 1),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

fn nobody_listens(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv6);
    let what = "nobody listens".to_owned();
    let ours = managers.client(scene, &wishes, PORT + 1)?;
    let mut known = managers.known(0, ours)?;
    let start = scene.frames();
    managers.cms[0]
        .connect(ours, Some(&wishes.param(0)))
        .map_err(say)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 8 {
        return Err(format!("{what}: {event:?}"));
    }
    known.comm_id = managers.traced(0, Attribute::Req)?.local_comm_id;
    let ends = Ends {
        ids: [ours, ours],
        known: [known, Known::default()],
        port: managers.cms[0].get_src_port(ours).map_err(say)?,
        start,
    };
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT + 1),
        managers.rej(scene, &wishes, [known.comm_id, 0], 8, &[]),
    ];
    scene.note(what.clone(), start, expected);
    managers.forget(&[(0, ours)])?;
    Ok(Relations {
        what,
        frames: start..scene.frames(),
        flow_label: 0,
    })
}

fn refused(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "the application refuses".to_owned();
    let ends = managers.ask(scene, &wishes)?;
    let reason = [0x5c; 148];
    managers.cms[1].reject(ends.ids[1], &reason).map_err(say)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 28 || event.private_data() != reason {
        return Err(format!("{what}: {event:?}"));
    }
    let theirs = managers.traced(1, Attribute::Rej)?.local_comm_id;
    let ours = ends.known[0].comm_id;
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.rej(scene, &wishes, [ours, theirs], 28, &reason),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}

/// The active side goes away before it is answered.
fn abandoned(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "the active side gives up".to_owned();
    let ends = managers.ask(scene, &wishes)?;
    managers.forget(&[(0, ends.ids[0])])?;
    let event = managers.event(scene, 1, EventType::Rejected)?;
    if event.id != ends.ids[1] || event.status != 4 {
        return Err(format!("{what}: {event:?}"));
    }
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.abandon(scene, &wishes, ends.known[0].comm_id),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}

impl Relations {
    /// What is wrong.
    pub(super) fn problems(&self, frames: &[Frame]) -> Vec<String> {
        let Some(frames) = frames.get(self.frames.clone()) else {
            return vec![format!("{}: frames are missing", self.what)];
        };
        let mut problems = Vec::new();
        let of = |attribute: Attribute| {
            let id = format!("{:#06x}", attribute as u16);
            frames
                .iter()
                .filter(move |frame| frame.first("infiniband.mad.attributeid") == id)
        };
        let tid = |frame: &Frame| frame.first("infiniband.mad.transactionid").to_owned();
        let asked = of(Attribute::Req).next();
        let hung_up = of(Attribute::Dreq).next();
        let mut same = |first: Option<&Frame>, messages: &[Attribute], wanted: bool| {
            let Some(first) = first else { return };
            for frame in messages.iter().flat_map(|message| of(*message)) {
                if (tid(frame) == tid(first)) != wanted {
                    problems.push(format!(
                        "{}: TID {}; {} has {}",
                        frame.summary(),
                        tid(frame),
                        first.summary(),
                        tid(first)
                    ));
                }
            }
        };
        // Answers have the TID of what they answer, and repetitions that of the first time.
        use Attribute::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu};
        same(asked, &[Req, Rep, Rtu, Mra, Rej], true);
        same(hung_up, &[Dreq, Drep], true);
        // A side has one TID for a connection, as with Linux: the DREQ of who sent the REQ has the same again.
        if let (Some(asked), Some(hung_up)) = (asked, hung_up) {
            let alike = asked.first("eth.src") == hung_up.first("eth.src");
            same(Some(asked), &[Dreq], alike);
        }
        // tshark misreads these two, so they are taken from the bytes: label in the upper 20 bits, rate in the lower 6.
        for frame in of(Attribute::Req) {
            let word = frame
                .mad_data()
                .and_then(|data| Some(u32::from_be_bytes(data.get(88..92)?.try_into().ok()?)));
            if word != Some(self.flow_label << 12) && self.flow_label != 0 {
                problems.push(format!(
                    "{}: {}: flow label and rate {word:x?}, meant {:#x} and 0",
                    self.what,
                    frame.summary(),
                    self.flow_label
                ));
            }
        }
        problems
    }

    /// Whose messages they are.
    pub(super) fn name(&self) -> &str {
        &self.what
    }
}
