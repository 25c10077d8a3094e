//! Each CM message, field by field, as it is meant.

use super::managers::{ACK_TIMEOUT, Ends, GSI_QKEY, Learned, Managers, Variant};
use crate::wireshark::expect::{Expected, Field, Value, bytes, number, text};
use crate::wireshark::scene::Scene;
use bareverbs_cm::mad::Attribute;
use connectx_model::Config as Card;
use std::net::IpAddr;

/// The starting PSN in a REQ or REP: the one that this end's QP expects. A QP that never got that far expects none, and
/// any will do.
fn starting_psn(name: &'static str, known: &Learned) -> Field {
    match known.expects {
        Some(psn) => number(name, psn),
        None => (name, Value::Within(0, 0xff_ffff)),
    }
}

impl Managers {
    /// Headers of a datagram between the QP1s.
    pub(super) fn datagram(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        from: usize,
        message: Attribute,
    ) -> Expected {
        let mut path = scene.path(variant.address);
        path.traffic_class = variant.tos;
        let mut fields = path.fields(from);
        // The flow label of the packets that carry the messages is not specified.
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

    pub(super) fn message(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        from: usize,
        message: Attribute,
        fields: Vec<Field>,
    ) -> Expected {
        let mut expected = self.datagram(scene, variant, from, message);
        expected.fields.extend(fields);
        expected
    }

    pub(super) fn req(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        ends: &Ends,
        to: u16,
    ) -> Expected {
        let (us, param) = (&ends.known[0], variant.param(0));
        let timers = variant.timers.unwrap_or_default();
        let space = variant.space as u16;
        let mut fields = vec![
            number("infiniband.cm.req", us.comm_id),
            number(
                "infiniband.cm.req.serviceid",
                u64::from(space) << 16 | u64::from(to),
            ),
            number("infiniband.cm.req.serviceid.protocol", space as u8),
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
            // The QP has none, independent of the parameters.
            number("infiniband.cm.req.srq", false),
            number("infiniband.cm.req.prim_locallid", 0xffffu16),
            number("infiniband.cm.req.prim_remotelid", 0xffffu16),
            number("infiniband.cm.req.prim_tfcclass", variant.tos),
            number("infiniband.cm.req.prim_hoplim", 64u8),
            number("infiniband.cm.req.prim_sl", 0u8),
            number("infiniband.cm.req.prim_subnetlocal", 0u8),
            number("infiniband.cm.req.alt_locallid", 0u8),
            number("infiniband.cm.req.alt_remotelid", 0u8),
            bytes("infiniband.cm.req.alt_localgid", &[], 16),
            bytes("infiniband.cm.req.alt_remotegid", &[], 16),
            // `cm_ack_timeout` of Linux's core/cm.c: the ACK delay counts where it is longer by more than a step.
            number(
                "infiniband.cm.req.prim_localacktout",
                variant.ack_timeout.map_or(ACK_TIMEOUT, |timeout| {
                    timeout.max(Card::new(1).general.local_ca_ack_delay())
                }),
            ),
            number("infiniband.cm.req.ip_cm.majv", 0u8),
            number("infiniband.cm.req.ip_cm.minv", 0u8),
            number("infiniband.cm.req.ip_cm.sport", ends.port),
            bytes("infiniband.cm.req.ip_cm.private", param.private_data, 56),
        ];
        let (source, destination) = (variant.address.ip(0), variant.address.ip(1));
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
        self.message(scene, variant, 0, Attribute::Req, fields)
    }

    pub(super) fn rep(&mut self, scene: &Scene, variant: &Variant, ends: &Ends) -> Expected {
        let (us, param) = (&ends.known[1], variant.param(1));
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
        self.message(scene, variant, 1, Attribute::Rep, fields)
    }

    pub(super) fn rtu(&mut self, scene: &Scene, variant: &Variant, ends: &Ends) -> Expected {
        let fields = vec![
            number("infiniband.cm.rtu.localcommid", ends.known[0].comm_id),
            number("infiniband.cm.rtu.remotecommid", ends.known[1].comm_id),
            bytes("infiniband.cm.rtu.private", &[], 224),
        ];
        self.message(scene, variant, 0, Attribute::Rtu, fields)
    }

    pub(super) fn dreq(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        ends: &Ends,
        from: usize,
    ) -> Expected {
        let fields = vec![
            number("infiniband.cm.dreq.localcommid", ends.known[from].comm_id),
            number(
                "infiniband.cm.dreq.remotecommid",
                ends.known[1 - from].comm_id,
            ),
            number("infiniband.cm.req.remoteqpneecn", ends.known[1 - from].qpn),
            bytes("infiniband.cm.dreq.private", &[], 220),
        ];
        self.message(scene, variant, from, Attribute::Dreq, fields)
    }

    pub(super) fn drep(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        ends: &Ends,
        from: usize,
    ) -> Expected {
        let fields = vec![
            number("infiniband.cm.drsp.localcommid", ends.known[from].comm_id),
            number(
                "infiniband.cm.drsp.remotecommid",
                ends.known[1 - from].comm_id,
            ),
            bytes("infiniband.cm.drsp.private", &[], 224),
        ];
        self.message(scene, variant, from, Attribute::Drep, fields)
    }

    /// A rejection by node 1, which answers a REQ.
    pub(super) fn rej(
        &mut self,
        scene: &Scene,
        variant: &Variant,
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
        self.message(scene, variant, 1, Attribute::Rej, fields)
    }

    /// A rejection by node 0, which abandoned its REQ: "timeout", with its GUID.
    pub(super) fn abandon(&mut self, scene: &Scene, variant: &Variant, ours: u32) -> Expected {
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
        self.message(scene, variant, 0, Attribute::Rej, fields)
    }

    /// A receipt for a REQ by node 1. tshark names it and shows its bytes: both IDs, the message (REQ), the time.
    pub(super) fn mra(
        &mut self,
        scene: &Scene,
        variant: &Variant,
        ends: &Ends,
        timeout: u8,
    ) -> Expected {
        let mut data = [0; 10];
        data[..4].copy_from_slice(&ends.known[1].comm_id.to_be_bytes());
        data[4..8].copy_from_slice(&ends.known[0].comm_id.to_be_bytes());
        data[9] = timeout << 3;
        let fields = vec![bytes("infiniband.mad.data", &data, 232)];
        self.message(scene, variant, 1, Attribute::Mra, fields)
    }
}
