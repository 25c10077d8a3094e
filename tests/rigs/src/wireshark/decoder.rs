//! Readings of a frame by our own decoders, with tshark's field names: two readings of the same bytes have to agree.

use super::expect::{Field, Value, bytes, number, text};
use super::packets::payload_field;
use bareverbs_cm::mad::{CmaHeader, DATA, Header, MAD_LEN, Mad, MadError, Message};
use connectx_model::roce::env::Encapsulation;
use connectx_model::roce::opcode::{Operation, Service};
use connectx_model::roce::packet::Packet;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

/// The management class of communication.
const CLASS_CM: u8 = 7;

/// RoCE packets and, in them, CM messages; `None` for anything else.
pub(super) fn view(frame: &[u8]) -> Result<Option<Vec<Field>>, String> {
    let packet = match Packet::parse(frame) {
        Ok(packet) => packet,
        Err(connectx_model::roce::packet::ParseError::NotRoce) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut fields = headers(&packet);
    base(&packet, &mut fields);
    // Behind the base header tshark does not dissect these services' packets, and that of DC is the models' own.
    if matches!(packet.repr.bth.opcode.service, Service::Xrc | Service::Dc) {
        return Ok(Some(fields));
    }
    transport(&packet, &mut fields);
    if packet.repr.bth.destination_qpn <= 1 {
        let encapsulation = packet.repr.headers.path.encapsulation;
        let over_ipv4 = matches!(encapsulation, Encapsulation::V2Ipv4 { .. });
        mad(packet.payload, over_ipv4, &mut fields)?;
    } else {
        fields.push(payload_field(packet.payload));
    }
    Ok(Some(fields))
}

fn headers(packet: &Packet<'_>) -> Vec<Field> {
    let path = &packet.repr.headers.path;
    let mut fields = vec![match path.vlan {
        Some(tag) => number("vlan.id", tag & 0xfff),
        None => ("vlan.id", Value::Absent),
    }];
    match path.encapsulation {
        Encapsulation::V1 {
            source,
            destination,
        } => fields.extend([
            text("infiniband.grh.sgid", Ipv6Addr::from(source)),
            text("infiniband.grh.dgid", Ipv6Addr::from(destination)),
            number("infiniband.grh.tclass", path.traffic_class),
            number("infiniband.grh.flowlabel", path.flow_label),
            number("infiniband.grh.hoplmt", path.hop_limit),
        ]),
        Encapsulation::V2Ipv4 {
            source,
            destination,
        } => fields.extend([
            text("ip.src", source),
            text("ip.dst", destination),
            number("ip.dsfield", path.traffic_class),
            number("ip.ttl", path.hop_limit),
            number("ip.id", packet.repr.headers.ipv4_ident),
            number("ip.flags.df", packet.repr.headers.ipv4_dont_fragment),
            number("udp.srcport", path.udp_source_port),
        ]),
        Encapsulation::V2Ipv6 {
            source,
            destination,
        } => fields.extend([
            text("ipv6.src", source),
            text("ipv6.dst", destination),
            number("ipv6.tclass", path.traffic_class),
            number("ipv6.flow", path.flow_label),
            number("ipv6.hlim", path.hop_limit),
            number("udp.srcport", path.udp_source_port),
        ]),
    }
    fields
}

fn base(packet: &Packet<'_>, fields: &mut Vec<Field>) {
    let bth = &packet.repr.bth;
    let pad = packet.payload.len().wrapping_neg() & 3;
    fields.extend([
        number("infiniband.bth.opcode", bth.opcode.byte()),
        number("infiniband.bth.se", bth.solicited),
        number("infiniband.bth.m", bth.migration),
        number("infiniband.bth.padcnt", pad as u64),
        number("infiniband.bth.tver", 0u8),
        number("infiniband.bth.p_key", bth.pkey),
        number("infiniband.bth.destqp", bth.destination_qpn),
        number("infiniband.bth.a", bth.ack_request),
        number("infiniband.bth.psn", bth.psn.get()),
    ]);
}

fn transport(packet: &Packet<'_>, fields: &mut Vec<Field>) {
    let (bth, extended) = (&packet.repr.bth, &packet.repr.extended);
    let operation = bth.opcode.operation;
    if bth.opcode.service == Service::Ud {
        fields.extend([
            number("infiniband.deth.q_key", extended.deth.qkey),
            number("infiniband.deth.srcqp", extended.deth.source_qpn),
        ]);
    } else {
        fields.push(("infiniband.deth.q_key", Value::Absent));
    }
    if operation.has_reth() {
        fields.extend([
            number("infiniband.reth.va", extended.reth.addr),
            number("infiniband.reth.r_key", extended.reth.rkey),
            number("infiniband.reth.dmalen", extended.reth.len),
        ]);
    } else if operation.has_atomic() {
        fields.extend([
            number("infiniband.reth.va", extended.atomic.addr),
            number("infiniband.reth.r_key", extended.atomic.rkey),
            number("infiniband.atomiceth.swapdt", extended.atomic.swap_or_add),
            number("infiniband.atomiceth.cmpdt", extended.atomic.compare),
        ]);
    } else {
        fields.push(("infiniband.reth.va", Value::Absent));
    }
    if operation.has_aeth() {
        fields.extend([
            number("infiniband.aeth.syndrome", extended.aeth.syndrome.byte()),
            number("infiniband.aeth.msn", extended.aeth.msn),
        ]);
    } else {
        fields.push(("infiniband.aeth.syndrome", Value::Absent));
    }
    if operation == Operation::AtomicAcknowledge {
        fields.push(number(
            "infiniband.atomicacketh.origremdt",
            extended.atomic_ack,
        ));
    }
    fields.push(if operation.has_imm() {
        bytes("infiniband.immdt", &extended.imm.to_be_bytes(), 4)
    } else {
        ("infiniband.immdt", Value::Absent)
    });
    fields.push(if operation.has_ieth() {
        bytes("infiniband.ieth", &extended.invalidate.to_be_bytes(), 4)
    } else {
        ("infiniband.ieth", Value::Absent)
    });
}

/// The common header of a management datagram whose class is not the CM's, which is all that our decoders read of it.
fn foreign(mad: &[u8; MAD_LEN]) -> Vec<Field> {
    let value = |at: Range<usize>| mad[at].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    vec![
        number("infiniband.mad.baseversion", value(0..1)),
        number("infiniband.mad.mgmtclass", value(1..2)),
        number("infiniband.mad.classversion", value(2..3)),
        number("infiniband.mad.method", value(3..4)),
        number("infiniband.mad.transactionid", value(8..16)),
        number("infiniband.mad.attributeid", value(16..18)),
        number("infiniband.mad.attributemodifier", value(20..24)),
    ]
}

fn mad(payload: &[u8], over_ipv4: bool, fields: &mut Vec<Field>) -> Result<(), String> {
    if let Some(other) = payload.first_chunk::<MAD_LEN>()
        && other[1] != CLASS_CM
    {
        fields.extend(foreign(other));
        return Ok(());
    }
    let mad = Mad::new(payload).map_err(|e| e.to_string())?;
    let Header {
        method,
        status,
        class_specific,
        transaction_id,
        attribute,
        modifier,
    } = mad.header();
    fields.extend([
        number("infiniband.mad.baseversion", 1u8),
        number("infiniband.mad.mgmtclass", 7u8),
        number("infiniband.mad.classversion", 2u8),
        number("infiniband.mad.method", method),
        number("infiniband.mad.status", status),
        number("infiniband.mad.classspecific", class_specific),
        number("infiniband.mad.transactionid", transaction_id),
        number("infiniband.mad.attributeid", attribute),
        number("infiniband.mad.attributemodifier", modifier),
    ]);
    match mad.message().map_err(|e| e.to_string())? {
        Message::Req(m) => request(&m, over_ipv4, fields)?,
        Message::Rep(m) => {
            let private = m.private_data;
            fields.extend([
                number("infiniband.cm.rep", m.local_comm_id),
                number("infiniband.cm.rep.remotecommid", m.remote_comm_id),
                number("infiniband.cm.rep.localqkey", m.local_qkey),
                number("infiniband.cm.rep.localqpn", m.local_qpn),
                number("infiniband.cm.rep.localeecn", m.local_eecn),
                number("infiniband.cm.rep.startpsn", m.starting_psn),
                number("infiniband.cm.rep.respres", m.responder_resources),
                number("infiniband.cm.rep.initdepth", m.initiator_depth),
                number("infiniband.cm.rep.tgtackdelay", m.target_ack_delay),
                number("infiniband.cm.rep.failoveracc", m.failover_accepted),
                number("infiniband.cm.rep.e2eflowctrl", m.flow_control),
                number("infiniband.cm.rep.rnrretrcount", m.rnr_retry_count),
                number("infiniband.cm.rep.srq", m.srq),
                number("infiniband.cm.rep.localcaguid", m.local_ca_guid),
                bytes("infiniband.cm.rep.private", private, private.len()),
            ]);
        }
        Message::Rtu(m) => fields.extend([
            number("infiniband.cm.rtu.localcommid", m.local_comm_id),
            number("infiniband.cm.rtu.remotecommid", m.remote_comm_id),
            bytes("infiniband.cm.rtu.private", m.private_data, 224),
        ]),
        Message::Rej(m) => fields.extend([
            number("infiniband.cm.rej.localcommid", m.local_comm_id),
            number("infiniband.cm.rej.remotecommid", m.remote_comm_id),
            number("infiniband.cm.rej.msgrej", m.message),
            number("infiniband.cm.rej.rejinfolen", m.info_len),
            number("infiniband.cm.rej.reason", m.reason),
            bytes("infiniband.cm.rej.ari", &m.info, 72),
            bytes("infiniband.cm.rej.private", m.private_data, 148),
        ]),
        Message::Dreq(m) => fields.extend([
            number("infiniband.cm.dreq.localcommid", m.local_comm_id),
            number("infiniband.cm.dreq.remotecommid", m.remote_comm_id),
            number("infiniband.cm.req.remoteqpneecn", m.remote_qpn),
            bytes("infiniband.cm.dreq.private", m.private_data, 220),
        ]),
        Message::Drep(m) => fields.extend([
            number("infiniband.cm.drsp.localcommid", m.local_comm_id),
            number("infiniband.cm.drsp.remotecommid", m.remote_comm_id),
            bytes("infiniband.cm.drsp.private", m.private_data, 224),
        ]),
        // tshark names the rest and shows bytes, which come below.
        _ => {}
    }
    let mut again = [0xa5; MAD_LEN];
    let message = mad.message().map_err(|e| e.to_string())?;
    message
        .emit(&mad.header(), &mut again)
        .map_err(|e| e.to_string())?;
    fields.push(bytes("infiniband.mad.data", &again[DATA..], MAD_LEN - DATA));
    Ok(())
}

fn request(
    m: &bareverbs_cm::mad::Req<'_>,
    over_ipv4: bool,
    fields: &mut Vec<Field>,
) -> Result<(), String> {
    fields.extend([
        number("infiniband.cm.req", m.local_comm_id),
        number("infiniband.cm.req.serviceid", m.service_id),
        number("infiniband.cm.req.localcaguid", m.local_ca_guid),
        number("infiniband.cm.req.localqkey", m.local_qkey),
        number("infiniband.cm.req.localqpn", m.local_qpn),
        number("infiniband.cm.req.responderres", m.responder_resources),
        number("infiniband.cm.req.localeecn", m.local_eecn),
        number("infiniband.cm.req.initdepth", m.initiator_depth),
        number("infiniband.cm.req.remoteeecn", m.remote_eecn),
        number(
            "infiniband.cm.req.remoteresptout",
            m.remote_cm_response_timeout,
        ),
        number("infiniband.cm.req.transpsvctype", m.transport),
        number("infiniband.cm.req.e2eflowctrl", m.flow_control),
        number("infiniband.cm.req.startpsn", m.starting_psn),
        number(
            "infiniband.cm.req.localresptout",
            m.local_cm_response_timeout,
        ),
        number("infiniband.cm.req.retrcount", m.retry_count),
        number("infiniband.cm.req.pkey", m.pkey),
        number("infiniband.cm.req.pppmtu", m.path_mtu),
        number("infiniband.cm.req.rdcexist", m.rdc_exists),
        number("infiniband.cm.req.rnrretrcount", m.rnr_retry_count),
        number("infiniband.cm.req.maxcmretr", m.max_cm_retries),
        number("infiniband.cm.req.srq", m.srq),
        number("infiniband.cm.req.ext_transport", m.extended_transport),
        number("infiniband.cm.req.prim_locallid", m.primary_local_lid),
        number("infiniband.cm.req.prim_remotelid", m.primary_remote_lid),
        number("infiniband.cm.req.prim_tfcclass", m.primary_traffic_class),
        number("infiniband.cm.req.prim_hoplim", m.primary_hop_limit),
        number("infiniband.cm.req.prim_sl", m.primary_sl),
        number("infiniband.cm.req.prim_subnetlocal", m.primary_subnet_local),
        number("infiniband.cm.req.prim_localacktout", m.primary_ack_timeout),
        number("infiniband.cm.req.alt_locallid", m.alternate_local_lid),
        number("infiniband.cm.req.alt_remotelid", m.alternate_remote_lid),
        bytes("infiniband.cm.req.alt_localgid", &m.alternate_local_gid, 16),
        bytes(
            "infiniband.cm.req.alt_remotegid",
            &m.alternate_remote_gid,
            16,
        ),
    ]);
    fields.extend(gids(over_ipv4, &m.primary_local_gid, &m.primary_remote_gid));
    let (header, private) = match CmaHeader::parse(m.private_data) {
        // Ids with GIDs have no header, and these programs no private data of their own.
        Err(MadError::IpVersion(0)) => return Ok(()),
        parsed => parsed.map_err(|error| error.to_string())?,
    };
    fields.extend(ip_cm(&header));
    fields.push(bytes("infiniband.cm.req.ip_cm.private", private, 56));
    Ok(())
}

/// The GIDs of a REQ: in packets of IPv4 tshark shows them as IPv4 addresses.
fn gids(over_ipv4: bool, local: &[u8; 16], remote: &[u8; 16]) -> Vec<Field> {
    let one = |v4: &'static str, v6: &'static str, gid: &[u8; 16]| {
        let address = Ipv6Addr::from(*gid);
        match address.to_ipv4_mapped().filter(|_| over_ipv4) {
            Some(address) => text(v4, address),
            None => text(v6, address),
        }
    };
    vec![
        one(
            "infiniband.cm.req.prim_localgid_ipv4",
            "infiniband.cm.req.prim_localgid",
            local,
        ),
        one(
            "infiniband.cm.req.prim_remotegid_ipv4",
            "infiniband.cm.req.prim_remotegid",
            remote,
        ),
    ]
}

/// The RDMA CM's header.
pub(super) fn ip_cm(header: &CmaHeader) -> Vec<Field> {
    let mut fields = vec![
        number("infiniband.cm.req.ip_cm.majv", 0u8),
        number("infiniband.cm.req.ip_cm.minv", 0u8),
        number("infiniband.cm.req.ip_cm.sport", header.source_port),
    ];
    match header.source {
        IpAddr::V4(_) => fields.extend([
            number("infiniband.cm.req.ip_cm.ipv", 4u8),
            text("infiniband.cm.req.ip_cm.sip4", header.source),
            text("infiniband.cm.req.ip_cm.dip4", header.destination),
        ]),
        IpAddr::V6(_) => fields.extend([
            number("infiniband.cm.req.ip_cm.ipv", 6u8),
            text("infiniband.cm.req.ip_cm.sip6", header.source),
            text("infiniband.cm.req.ip_cm.dip6", header.destination),
        ]),
    }
    fields
}
