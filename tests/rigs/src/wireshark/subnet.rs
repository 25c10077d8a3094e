//! Records of subnet administration, every field of them another number, as tshark reads them. They travel in what the models
//! have for InfiniBand's link layer, which is RoCE v1 to tshark.

use super::expect::{Field, differences, number, text};
use super::readings::{frames, report, write};
use super::tshark;
use crate::outcome::Outcome;
use bareverbs_cm::mad::MAD_LEN;
use bareverbs_cm::mad::sa::{
    JoinState, McMemberRecord, PathRecord, SA_DATA, SaHeader, SaMethod, SaRedirection, SaStatus,
};
use connectx_model::pcap::Writer;
use connectx_model::roce::env::{Encapsulation, Path as NetworkPath};
use connectx_model::roce::headers::Headers;
use connectx_model::roce::opcode::{Opcode, Operation, Service};
use connectx_model::roce::packet::{Bth, Deth, Extended, ICRC_LEN, Repr};
use connectx_model::roce::psn::Psn;
use connectx_model::roce::transport::{GSI_QKEY, GSI_QPN};
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

const OURS: &str = "fe80::2:c903:0:201";
const THEIRS: &str = "fe80::2:c903:0:301";
const GROUP: &str = "ff12:4001:ffff::f01:203";

fn gid(address: &str) -> Result<[u8; 16], String> {
    let address: Ipv6Addr = address.parse().map_err(|e| format!("{address}: {e}"))?;
    Ok(address.octets())
}

/// Writes, has it dissected, and compares.
pub(super) fn run(outcome: &mut Outcome, work: &Path, home: &Path) -> Result<(), String> {
    let meant = [path()?, member()?, redirection()?];
    let mut capture = Writer::new(Vec::new()).map_err(|e| e.to_string())?;
    for (mad, _) in &meant {
        let frame = frame(mad)?;
        capture
            .write(&frame, Duration::ZERO)
            .map_err(|e| e.to_string())?;
    }
    let capture = capture.finish().map_err(|e| e.to_string())?;
    let file = work.join("subnet.pcap");
    write(&file, &capture)?;
    let seen = tshark::dissect(&file, home)?;
    let count = frames(&capture)?.len();
    outcome.check(seen.len() == count, || {
        format!("tshark shows {} records of {count}", seen.len())
    });
    let mut compared = 0;
    for ((_, fields), frame) in meant.iter().zip(&seen) {
        compared += fields.len();
        report(
            outcome,
            "subnet administration",
            &differences(frame, fields),
        );
    }
    println!("compared {compared} fields of subnet administration");
    Ok(())
}

fn header(method: SaMethod, component_mask: u64) -> SaHeader {
    SaHeader {
        sm_key: 0x0102_0304_0506_0708,
        attribute_offset: 8,
        ..SaHeader::request(method, 0x1122_3344_5566_7788, component_mask)
    }
}

fn common(method: u8, attribute: u16, components: u64) -> Vec<Field> {
    vec![
        number("infiniband.mad.mgmtclass", 3u8),
        number("infiniband.mad.classversion", 2u8),
        number("infiniband.mad.method", method),
        number("infiniband.mad.transactionid", 0x1122_3344_5566_7788_u64),
        number("infiniband.mad.attributeid", attribute),
        number("infiniband.sa.smkey", 0x0102_0304_0506_0708_u64),
        number("infiniband.sa.attributeoffset", 8u8),
        number("infiniband.sa.componentmask", components),
    ]
}

fn path() -> Result<([u8; MAD_LEN], Vec<Field>), String> {
    let components = PathRecord::DGID | PathRecord::SGID | PathRecord::PREFERENCE;
    let record = PathRecord {
        service_id: 0x0106_1c06,
        dgid: gid(THEIRS)?,
        sgid: gid(OURS)?,
        dlid: 0x1234,
        slid: 0x5678,
        raw_traffic: 1,
        flow_label: 0xabcde,
        hop_limit: 0x9f,
        traffic_class: 0x3c,
        reversible: 1,
        numb_path: 5,
        pkey: 0x8001,
        qos_class: 0x123,
        sl: 4,
        mtu_selector: 2,
        mtu: 4,
        rate_selector: 3,
        rate: 7,
        packet_life_time_selector: 1,
        packet_life_time: 18,
        preference: 6,
    };
    let mut mad = [0; MAD_LEN];
    record
        .emit(&header(SaMethod::GetResp, components), &mut mad)
        .map_err(|e| e.to_string())?;
    let mut fields = common(0x81, 0x35, components);
    fields.extend([
        text("infiniband.pathrecord.dgid", THEIRS),
        text("infiniband.pathrecord.sgid", OURS),
        number("infiniband.pathrecord.dlid", 0x1234u16),
        number("infiniband.pathrecord.slid", 0x5678u16),
        number("infiniband.pathrecord.rawtraffic", 1u8),
        number("infiniband.pathrecord.flowlabel", 0xabcdeu32),
        number("infiniband.pathrecord.hoplimit", 0x9fu8),
        number("infiniband.pathrecord.tclass", 0x3cu8),
        number("infiniband.pathrecord.reversible", 1u8),
        number("infiniband.pathrecord.numbpath", 5u8),
        number("infiniband.pathrecord.p_key", 0x8001u16),
        number("infiniband.pathrecord.sl", 4u8),
        number("infiniband.pathrecord.mtuselector", 2u8),
        number("infiniband.pathrecord.mtu", 4u8),
        number("infiniband.pathrecord.rateselector", 3u8),
        number("infiniband.pathrecord.rate", 7u8),
        number("infiniband.pathrecord.packetlifetimeselector", 1u8),
        number("infiniband.pathrecord.packetlifetime", 18u8),
        number("infiniband.pathrecord.preference", 6u8),
    ]);
    Ok((mad, fields))
}

fn member() -> Result<([u8; MAD_LEN], Vec<Field>), String> {
    let components = McMemberRecord::MGID | McMemberRecord::PORT_GID | McMemberRecord::PROXY_JOIN;
    let record = McMemberRecord {
        mgid: gid(GROUP)?,
        port_gid: gid(OURS)?,
        qkey: 0x0123_4567,
        mlid: 0xc001,
        mtu_selector: 2,
        mtu: 5,
        traffic_class: 0x10,
        pkey: 0x8123,
        rate_selector: 1,
        rate: 16,
        packet_life_time_selector: 3,
        packet_life_time: 15,
        sl: 3,
        flow_label: 0x12345,
        hop_limit: 0x40,
        scope: 2,
        join_state: JoinState::SendOnlyFullMember as u8,
        proxy_join: 1,
    };
    let mut mad = [0; MAD_LEN];
    record
        .emit(&header(SaMethod::Delete, components), &mut mad)
        .map_err(|e| e.to_string())?;
    let mut fields = common(0x15, 0x38, components);
    fields.extend([
        text("infiniband.mcmemberrecord.mgid", GROUP),
        text("infiniband.mcmemberrecord.portgid", OURS),
        number("infiniband.mcmemberrecord.q_key", 0x0123_4567u32),
        number("infiniband.mcmemberrecord.mlid", 0xc001u16),
        number("infiniband.mcmemberrecord.mtuselector", 2u8),
        number("infiniband.mcmemberrecord.mtu", 5u8),
        number("infiniband.mcmemberrecord.tclass", 0x10u8),
        number("infiniband.mcmemberrecord.p_key", 0x8123u16),
        number("infiniband.mcmemberrecord.rateselector", 1u8),
        number("infiniband.mcmemberrecord.rate", 16u8),
        number("infiniband.mcmemberrecord.packetlifetimeselector", 3u8),
        number("infiniband.mcmemberrecord.packetlifetime", 15u8),
        number("infiniband.mcmemberrecord.sl", 3u8),
        number("infiniband.mcmemberrecord.flowlabel", 0x12345u32),
        number("infiniband.mcmemberrecord.hoplimit", 0x40u8),
        number("infiniband.mcmemberrecord.scope", 2u8),
        number("infiniband.mcmemberrecord.joinstate", 8u8),
        number("infiniband.mcmemberrecord.proxyjoin", 1u8),
    ]);
    Ok((mad, fields))
}

/// ClassPortInfo is the same in all classes; tshark knows it in performance management, whose data begin later.
fn redirection() -> Result<([u8; MAD_LEN], Vec<Field>), String> {
    const PERFORMANCE: u8 = 4;
    const PERFORMANCE_DATA: usize = 64;
    const LEN: usize = 72;
    let to = SaRedirection {
        gid: gid(THEIRS)?,
        traffic_class: 0x3c,
        sl: 4,
        flow_label: 0xabcde,
        lid: 0x1234,
        pkey: 0x8001,
        qpn: 0x0012_3456,
        qkey: 0x0123_4567,
    };
    let header = SaHeader {
        method: SaMethod::GetResp,
        status: SaStatus::REDIRECT,
        ..header(SaMethod::Get, 0)
    };
    let mut mad = [0; MAD_LEN];
    to.emit(&header, &mut mad).map_err(|e| e.to_string())?;
    let mut other = [0; MAD_LEN];
    other[..24].copy_from_slice(&mad[..24]);
    other[1] = PERFORMANCE;
    other[2] = 1;
    other[PERFORMANCE_DATA..PERFORMANCE_DATA + LEN].copy_from_slice(&mad[SA_DATA..SA_DATA + LEN]);
    let fields = vec![
        number("infiniband.mad.method", 0x81u8),
        number("infiniband.mad.status", 2u16),
        number("infiniband.mad.attributeid", 1u16),
        number("infiniband.classportinfo.baseversion", 1u8),
        number("infiniband.classportinfo.classversion", 2u8),
        text("infiniband.classportinfo.redirectgid", THEIRS),
        number("infiniband.classportinfo.redirecttc", 0x3cu8),
        number("infiniband.classportinfo.redirectsl", 4u8),
        number("infiniband.classportinfo.redirectfl", 0xabcdeu32),
        number("infiniband.classportinfo.redirectlid", 0x1234u16),
        number("infiniband.classportinfo.redirectpkey", 0x8001u16),
        number("infiniband.classportinfo.redirectqp", 0x0012_3456u32),
        number("infiniband.classportinfo.redirectqkey", 0x0123_4567u32),
    ];
    Ok((other, fields))
}

/// A datagram between two QP1s.
fn frame(mad: &[u8; MAD_LEN]) -> Result<Vec<u8>, String> {
    let packet = Repr {
        headers: Headers::new(NetworkPath {
            source_mac: [2, 0x1b, 0, 0, 0, 1],
            destination_mac: [2, 0x1b, 0, 0, 0, 2],
            vlan: None,
            encapsulation: Encapsulation::V1 {
                source: gid(OURS)?,
                destination: gid(THEIRS)?,
            },
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 1,
            udp_source_port: 0,
        }),
        bth: Bth {
            opcode: Opcode {
                service: Service::Ud,
                operation: Operation::SendOnly,
            },
            solicited: false,
            migration: true,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            destination_qpn: GSI_QPN,
            ack_request: false,
            psn: Psn::new(0),
        },
        extended: Extended {
            deth: Deth {
                qkey: GSI_QKEY,
                source_qpn: GSI_QPN,
            },
            ..Extended::default()
        },
    };
    let mut frame = vec![0; packet.header_len() + mad.len() + ICRC_LEN];
    packet
        .emit(&mut frame, mad.len(), |payload| {
            payload.copy_from_slice(mad);
            Ok::<_, String>(())
        })
        .map(|_| frame)
}
