//! The attributes of a device and its port, in the order in which `ibv_devinfo -v` has them.

use std::time::Duration;

use bareverbs::verbs::{
    Capabilities, Config, Device, DeviceSlot, FunctionKind, LinkLayer, Mtu, PageChunk, Platform,
    PortState, RoceVersion, Storage,
};
use bareverbs_examples::Result;
use bareverbs_node::wait_for_link;

use super::chunks::with_page_chunks;
use super::report::Report;
use super::{infiniband, settings};

/// The time for a link to come up before it is shown as it is.
const LINK: Duration = Duration::from_secs(3);

/// Brings the device up, asks it, and takes it down again.
pub(crate) fn report<P: Platform>(platform: P, name: &str, part: u16) -> Result<Report> {
    with_page_chunks(|chunks| attempt(&platform, name, part, chunks))
}

fn attempt<P: Platform>(
    platform: P,
    name: &str,
    part: u16,
    mut chunks: Vec<PageChunk>,
) -> Result<Report> {
    let mut slot = DeviceSlot::new();
    let storage = Storage::new(&mut slot, &mut [], &mut [], &mut [], &mut chunks);
    let started = platform.now();
    let device = Device::open(platform, Config::DEFAULT, storage)?;
    let bring_up = device.platform().now() - started;
    let commands = device.commands_executed();
    let port = wait_for_link(&device, LINK)?;
    let adapter = device.query_adapter()?;

    let mut report = Report::default();
    report.text("hca_id", name);
    report.text("transport", "InfiniBand (0)");
    report.text("fw_ver", device.capabilities().firmware.to_string());
    report.text("node_guid", guid(port.node_guid));
    report.text("sys_image_guid", guid(port.system_image_guid));
    report.hex("vendor_id", adapter.ieee_vendor_id.into());
    report.number("vendor_part_id", part.into());
    report.text(
        "function",
        match device.function_kind() {
            FunctionKind::Physical => "physical",
            FunctionKind::Virtual => "virtual",
        },
    );
    report.text("board_id", printable(adapter.board_id()));
    report.number(
        "phys_port_cnt",
        device.capabilities().hca.num_ports().into(),
    );
    limits(&mut report, device.capabilities());
    report.number("num_comp_vectors", device.completion_vectors().into());
    report.number("bring_up_commands", commands);
    report.number("bring_up_us", bring_up.as_micros() as u64);

    report.text(
        "state",
        match port.state {
            PortState::Down => format!("PORT_DOWN (1), {}", device.query_link()?),
            PortState::Init => "PORT_INIT (2)".into(),
            PortState::Armed => "PORT_ARMED (3)".into(),
            PortState::Active => "PORT_ACTIVE (4)".into(),
            PortState::ActiveDefer => "PORT_ACTIVE_DEFER (5)".into(),
            PortState::Unknown(number) => format!("unknown ({number})"),
        },
    );
    report.in_port();
    report.text("max_mtu", mtu(port.max_mtu));
    report.text("active_mtu", mtu(port.active_mtu));
    report.number("sm_lid", port.sm_lid.into());
    report.number("port_lid", port.lid.into());
    report.hex("port_lmc", port.lmc.into());
    report.text(
        "link_layer",
        match port.link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        },
    );
    report.hex("max_msg_sz", port.max_msg_size);
    report.hex("port_cap_flags", port.cap_mask.into());
    report.number("sm_sl", port.sm_sl.into());
    report.number("pkey_tbl_len", port.pkey_table_len as u64);
    report.number("gid_tbl_len", port.gid_table_len as u64);
    report.number("subnet_timeout", port.subnet_timeout.into());
    report.number("rate_mbps", port.rate_mbps.into());
    report.text("port_guid", guid(port.port_guid));
    if port.link_layer == LinkLayer::Ethernet {
        report.text("mac", mac(port.mac));
    }
    settings::report(&mut report, &device)?;
    if port.link_layer == LinkLayer::InfiniBand {
        infiniband::report(&mut report, &device, &port)?;
    }
    for (index, entry) in device.gid_table() {
        let version = match entry.version {
            RoceVersion::V1 => "RoCE v1",
            RoceVersion::V2 => "RoCE v2",
        };
        let vlan = entry
            .vlan
            .map_or_else(String::new, |vlan| format!(", VLAN {vlan}"));
        report.text(
            &format!("GID[{index:3}]"),
            format!("{}, {version}{vlan}", entry.gid),
        );
    }
    device.close()?;
    Ok(report)
}

/// The attributes of `ibv_query_device`, from the capabilities.
fn limits(report: &mut Report, capabilities: &Capabilities) {
    let hca = &capabilities.hca;
    let power = |log: u8| 1u64.checked_shl(log.into()).unwrap_or(u64::MAX);
    // A receive entry is data segments only, of 16 bytes.
    let receive_sges = u64::from(hca.max_wqe_sz_rq()) / 16;
    let send_sges = u64::from(capabilities.max_sge_rd());
    let qps = u64::from(capabilities.max_qp());
    let reads = u64::from(capabilities.max_responder_resources());
    let groups = power(hca.log_max_mcg());
    let members = u64::from(hca.max_qp_mcg());

    report.hex("max_mr_size", capabilities.max_mr_size());
    report.hex("page_size_cap", !(power(hca.log_pg_sz()) - 1));
    report.number("max_qp", qps);
    report.number("max_qp_wr", capabilities.max_qp_wr().into());
    report.number("max_sge", send_sges.min(receive_sges));
    report.number("max_sge_rd", send_sges);
    report.number("max_cq", capabilities.max_cq().into());
    report.number("max_cqe", capabilities.max_cqe().into());
    report.number("max_mr", capabilities.max_mr().into());
    report.number("max_pd", capabilities.max_pd().into());
    report.number("max_qp_rd_atom", reads);
    report.number("max_res_rd_atom", reads.saturating_mul(qps));
    report.number(
        "max_qp_init_rd_atom",
        capabilities.max_initiator_depth().into(),
    );
    report.text(
        "atomic_cap",
        if capabilities.has_atomics() {
            "ATOMIC_HCA (1)"
        } else {
            "ATOMIC_NONE (0)"
        },
    );
    report.number("max_mcast_grp", groups);
    report.number("max_mcast_qp_attach", members);
    report.number("max_total_mcast_qp_attach", groups.saturating_mul(members));
    report.number("max_srq", capabilities.max_srq().into());
    report.number("max_srq_wr", capabilities.max_srq_wr().into());
    report.number("max_srq_sge", receive_sges.saturating_sub(1));
    report.number("local_ca_ack_delay", hca.local_ca_ack_delay().into());
    report.number("hca_core_clock_khz", hca.device_frequency_khz().into());
    report.text(
        "qp_types",
        [
            (hca.rc(), "RC"),
            (hca.uc(), "UC"),
            (hca.ud(), "UD"),
            (hca.xrc(), "XRC"),
        ]
        .iter()
        .filter_map(|(present, name)| present.then_some(*name))
        .collect::<Vec<_>>()
        .join(" "),
    );
    report.number("issi", capabilities.issi.into());
    if let Some(roce) = &capabilities.roce {
        report.hex("roce_version", roce.roce_version().into());
        report.number("roce_dest_udp_port", roce.r_roce_dest_udp_port().into());
    }
}

/// As `ibv_devinfo` writes it: four groups of four digits.
fn guid(guid: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (guid >> shift) & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn mtu(mtu: Mtu) -> String {
    format!("{} ({})", mtu.bytes(), mtu.number())
}

/// Without what would steer a terminal: the text comes from the device.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
