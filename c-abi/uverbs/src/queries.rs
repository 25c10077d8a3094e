//! The queries of the device and its port.

use bareverbs_node::verbs::firmware_cmds::caps::{EthernetOffloadCaps, QueryHcaCapIn};
use bareverbs_node::verbs::firmware_cmds::values::{CapabilityGroup, CapabilityMode};
use bareverbs_node::verbs::{LinkLayer, Platform, PortState, TailIn};
use zerocopy::{FromBytes, FromZeros};

use crate::abi::*;
use crate::attrs::{Args, Result, refused};
use crate::dm;
use crate::raw_abi::{ExQueryDeviceOut, Mlx5QueryDeviceOut};
use crate::raw_commands::{HASH_FIELDS, HASH_TOEPLITZ};
use crate::server::Server;

/// `1 << IB_QPT_RAW_PACKET`.
const RAW_PACKET: u32 = 1 << 8;
/// `MLX5_IB_CQE_RES_FORMAT_HASH` and `_CSUM`, and `_CSUM_STRIDX`.
const CQE_FORMATS: u32 = 1 << 0 | 1 << 1;
const CQE_STRIDES: u32 = 1 << 2;
/// `IB_ODP_SUPPORT` and `IB_ODP_SUPPORT_IMPLICIT`.
const ODP: u32 = 1 << 0;
const ODP_IMPLICIT: u32 = 1 << 1;
/// `enum ib_odp_transport_cap_bits`: SEND, receives, and those of an SRQ; all of them with WRITE, READ and atomics.
const ODP_SEND: u32 = 1 << 0;
const ODP_RECV: u32 = 1 << 1;
const ODP_SRQ: u32 = 1 << 5;
const ODP_ALL: u32 = (1 << 6) - 1;
/// Size of a capability group's image.
const GROUP_LEN: usize = 4096;
/// Flags of `ib_uverbs_query_device_resp.device_cap_flags`.
mod cap {
    /// `CHANGE_PHY_PORT`, `PORT_ACTIVE_EVENT`, `SYS_IMAGE_GUID` and `RC_RNR_NAK_GEN`.
    pub(super) const ALWAYS: u32 = 1 << 5 | 1 << 10 | 1 << 11 | 1 << 12;
    pub(super) const AUTO_PATH_MIG: u32 = 1 << 4;
    /// `MEM_WINDOW` and `MEM_WINDOW_TYPE_2B`.
    pub(super) const WINDOWS: u32 = 1 << 17 | 1 << 24;
    pub(super) const XRC: u32 = 1 << 20;
    pub(super) const RAW_IP_CSUM: u32 = 1 << 26;
    pub(super) const MANAGED_FLOW_STEERING: u32 = 1 << 29;
    pub(super) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
}

/// `MLX5_IB_METHOD_QUERY_PORT`: what it tells is about ports of an e-switch, which there is none of.
pub(crate) fn dv_query_port(args: &mut Args) -> Result<()> {
    if args.number(DV_QUERY_PORT_NUM)? as u32 != 1 {
        return Err(libc::EINVAL);
    }
    // `struct mlx5_ib_uapi_query_port`.
    args.output(DV_QUERY_PORT_OUT, &[0_u64; 5]);
    Ok(())
}

impl Server<'_, '_, '_> {
    /// The device's abilities with frames; `None` without raw packet QPs.
    fn offloads(&self) -> Result<Option<EthernetOffloadCaps>> {
        let caps = self.device.capabilities();
        if caps.link_layer() != LinkLayer::Ethernet || !caps.hca.eth_net_offloads() {
            return Ok(None);
        }
        let mut query = QueryHcaCapIn::new();
        let group = CapabilityGroup::EthernetOffloads;
        query.set_op_mod(group.query(CapabilityMode::Current));
        let mut image = [0; GROUP_LEN];
        let done = self.device.execute_with(&query, TailIn::None, &mut image);
        done.map_err(refused)?;
        let (caps, _) = EthernetOffloadCaps::read_from_prefix(&image).map_err(|_| libc::EIO)?;
        Ok(Some(caps))
    }

    /// Refuses what the device cannot do with received frames: take VLAN tags out, and leave check sequences in.
    pub(crate) fn check_offloads(&self, strip: bool, scatter_fcs: bool) -> Result<()> {
        if !strip && !scatter_fcs {
            return Ok(());
        }
        let caps = self.offloads()?.unwrap_or(EthernetOffloadCaps::ZERO);
        match strip && !caps.vlan_cap() || scatter_fcs && !caps.scatter_fcs() {
            true => Err(libc::EOPNOTSUPP),
            false => Ok(()),
        }
    }

    pub(crate) fn query_device(&mut self, args: &mut Args, extended: bool) -> Result<()> {
        let caps = self.device.capabilities();
        let port = self.device.query_port().map_err(refused)?;
        let adapter = self.device.query_adapter().map_err(refused)?;
        let firmware = caps.firmware;
        let receive = u32::from(caps.hca.max_wqe_sz_rq()) / 16;
        let frames = self.offloads()?;
        let offloads = frames.unwrap_or(EthernetOffloadCaps::ZERO);
        let flags = [
            (cap::ALWAYS, true),
            (cap::AUTO_PATH_MIG, caps.has_alternate_paths()),
            (cap::WINDOWS, caps.has_memory_windows()),
            (cap::XRC, caps.has_xrc()),
            (cap::RAW_IP_CSUM, offloads.csum_cap()),
            (
                cap::MANAGED_FLOW_STEERING,
                frames.is_some() && caps.hca.nic_flow_table(),
            ),
            (
                cap::MEM_MGT_EXTENSIONS,
                !caps.hca.umr_modify_entity_size_disabled(),
            ),
        ];
        let given = flags.iter().filter(|(_, given)| *given);
        let max_mcast_grp = 1 << caps.hca.log_max_mcg();
        let base = QueryDeviceOut {
            fw_ver: u64::from(firmware.major) << 32
                | u64::from(firmware.minor) << 16
                | u64::from(firmware.subminor),
            node_guid: port.node_guid.to_be_bytes(),
            sys_image_guid: port.system_image_guid.to_be_bytes(),
            max_mr_size: caps.max_mr_size(),
            page_size_cap: !0xfff,
            vendor_id: adapter.ieee_vendor_id,
            vendor_part_id: self.device.platform().device_id().unwrap_or(0).into(),
            max_qp: caps.max_qp(),
            max_qp_wr: caps.max_qp_wr() / 4,
            max_sge: caps.max_sge_rd().min(receive),
            max_sge_rd: caps.max_sge_rd(),
            max_cq: caps.max_cq(),
            max_cqe: caps.max_cqe(),
            max_mr: caps.max_mr(),
            max_mw: match caps.has_memory_windows() {
                true => caps.max_mr(),
                false => 0,
            },
            device_cap_flags: given.fold(0, |flags, (flag, _)| flags | flag),
            max_pd: caps.max_pd(),
            max_srq: caps.max_srq(),
            max_srq_wr: caps.max_srq_wr(),
            max_srq_sge: receive.saturating_sub(1),
            max_mcast_grp,
            max_mcast_qp_attach: caps.hca.max_qp_mcg(),
            max_total_mcast_qp_attach: max_mcast_grp.saturating_mul(caps.hca.max_qp_mcg()),
            max_res_rd_atom: caps.max_responder_resources().saturating_mul(caps.max_qp()),
            max_qp_rd_atom: caps.max_responder_resources(),
            max_qp_init_rd_atom: caps.max_initiator_depth(),
            atomic_cap: caps.has_atomics().into(),
            max_ah: 1 << 30,
            max_pkeys: 1,
            local_ca_ack_delay: caps.hca.local_ca_ack_delay(),
            phys_port_cnt: 1,
            ..FromZeros::new_zeroed()
        };
        if extended {
            let power = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(0);
            let on_demand = |operations: u32| if self.on_demand { operations } else { 0 };
            let of_frames = |number: u32| if frames.is_some() { number } else { 0 };
            let out = ExQueryDeviceOut {
                base,
                response_length: size_of::<ExQueryDeviceOut>() as u32,
                odp_general: on_demand(ODP | ODP_IMPLICIT).into(),
                odp_rc: on_demand(ODP_ALL),
                odp_ud: on_demand(ODP_SEND | ODP_SRQ),
                max_dm_size: dm::longest(self.device)?,
                odp_xrc: on_demand(ODP_ALL & !ODP_RECV),
                timestamp_mask: u64::MAX >> 1,
                hca_core_clock: self.device.clock_khz().unwrap_or(0).into(),
                device_cap_flags_ex: u64::from(base.device_cap_flags),
                rss_supported_qpts: of_frames(RAW_PACKET),
                max_rwq_indirection_tables: of_frames(power(caps.hca.log_max_rqt())),
                max_rwq_indirection_table_size: of_frames(power(caps.hca.log_max_rqt_size())),
                max_wq_type_rq: of_frames(power(caps.hca.log_max_rq())),
                raw_packet_caps: u32::from(offloads.vlan_cap())
                    | u32::from(offloads.scatter_fcs()) << 1
                    | u32::from(offloads.csum_cap()) << 2,
                ..FromZeros::new_zeroed()
            };
            args.output(CORE_OUT, &out);
            let max_tso = match offloads.max_lso_cap() {
                0 => 0,
                log => power(log),
            };
            let compresses = caps.hca.cqe_compression();
            let out = Mlx5QueryDeviceOut {
                comp_mask: 0,
                response_length: size_of::<Mlx5QueryDeviceOut>() as u32,
                max_tso,
                tso_supported_qpts: if max_tso == 0 { 0 } else { RAW_PACKET },
                rx_hash_fields_mask: if frames.is_some() { HASH_FIELDS } else { 0 },
                rx_hash_function: of_frames(HASH_TOEPLITZ.into()) as u8,
                cqe_comp_max_num: match compresses {
                    true => caps.hca.cqe_compression_max_num().into(),
                    false => 0,
                },
                cqe_comp_formats: match (compresses, caps.hca.mini_cqe_resp_stride_index()) {
                    (false, _) => 0,
                    (true, false) => CQE_FORMATS,
                    (true, true) => CQE_FORMATS | CQE_STRIDES,
                },
                flags: u32::from(caps.hca.cqe_compression_128())
                    | u32::from(caps.hca.cqe_128_always()) << 1,
                dci_streams: caps
                    .dci_streams()
                    .map_or([0; 2], |most| [most.log_concurrent, most.log_errored]),
                ..FromZeros::new_zeroed()
            };
            args.output(UHW_OUT, &out);
        } else {
            args.output(CORE_OUT, &base);
        }
        Ok(())
    }

    pub(crate) fn query_port(&mut self, args: &mut Args) -> Result<()> {
        let QueryPortIn { port_num, .. } = args.input(CORE_IN)?;
        if port_num != 1 {
            return Err(libc::EINVAL);
        }
        let port = self.device.query_port().map_err(refused)?;
        let ethernet = port.link_layer == LinkLayer::Ethernet;
        // Lanes and the speed of each, as `mlx5_ib` has them.
        let (width, speed) = match port.rate_mbps / 1000 {
            0..10 => (1, 1),
            10..25 => (1, 4),
            25..40 => (1, 32),
            40..100 => (2, 4),
            100..200 => (2, 32),
            200..400 => (2, 64),
            _ => (2, 128),
        };
        let out = QueryPortOut {
            // CM_SUP, IP_BASED_GIDS.
            port_cap_flags: 1 << 16 | 1 << 26,
            max_msg_sz: u32::try_from(port.max_msg_size).unwrap_or(u32::MAX),
            gid_tbl_len: port.gid_table_len as u32,
            pkey_tbl_len: if ethernet {
                1
            } else {
                port.pkey_table_len as u16
            },
            lid: port.lid,
            sm_lid: port.sm_lid,
            state: match port.state {
                PortState::Down => 1,
                PortState::Init => 2,
                PortState::Armed => 3,
                PortState::Active => 4,
                PortState::ActiveDefer => 5,
                PortState::Unknown(_) => 0,
            },
            max_mtu: port.max_mtu.number(),
            active_mtu: port.active_mtu.number(),
            active_width: width,
            active_speed: speed,
            phys_state: if port.state == PortState::Down { 3 } else { 5 },
            link_layer: if ethernet { 2 } else { 1 },
            // GRH_REQUIRED.
            flags: 1,
            ..FromZeros::new_zeroed()
        };
        args.output(CORE_OUT, &out);
        Ok(())
    }
}
