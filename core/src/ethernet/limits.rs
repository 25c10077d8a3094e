//! The function's limits for Ethernet queues: asked once, when a queue is created.

use bareverbs_firmware_cmds::caps::{EthernetOffloadCaps, FlowTableNicCap, QueryHcaCapIn};
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode, InlineMode};
use zerocopy::{FromBytes, FromZeros};

use crate::device::{Device, TailIn};
use crate::ethernet::error::EthernetError;
use crate::ethernet::offload::EthernetSendFlags;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::port::LinkLayer;

/// Size of a capability group's image.
const GROUP_LEN: usize = 4096;
/// Largest work queue whose full and empty states 16-bit counters can distinguish.
const MAX_LOG_QUEUE: u8 = 15;

/// `wqe_inline_mode`: always the Ethernet header; as the port's context says.
const INLINE_L2: u8 = 0;
const INLINE_BY_CONTEXT: u8 = 1;

/// The function's limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Checksums that are filled in; those that are not inner ones are verified as well.
    pub(super) checksums: EthernetSendFlags,
    /// VLAN tags are put in by the request's segment, and taken out by the receive queue.
    pub(super) vlan_insert: bool,
    pub(super) vlan_strip: bool,
    /// Bytes of the longest large send; 0 without.
    pub(super) max_lso: u32,
    /// Several packets in one request.
    pub(super) multi_packet: bool,
    /// Binary logarithm of the least strides of a request, if there are striding receive queues.
    pub(super) log_strides: Option<u32>,
    /// Headers that have to be inline.
    pub(super) inline_mode: InlineMode,
    /// `min_wqe_inline_mode` of send queues: what the port's context says, and 0 where the device does not ask for it.
    pub(super) queue_inline_mode: u8,
    /// Binary logarithm of the blocks of a send queue, and of the WQEs of a receive queue.
    pub(super) log_queue: u8,
    /// Binary logarithm of a flow table's size.
    pub(super) log_table: u8,
    /// `true` if the root of steering is set by command.
    pub(super) modify_root: bool,
    /// The level of a queue's own table: the second one, if tables have levels.
    pub(super) queue_level: u8,
    /// Multicast addresses that the port's list can hold.
    pub(super) groups: u32,
    /// The clock of completions: what `ts_format` of each queue has to say.
    pub(super) send_clock: u8,
    pub(super) receive_clock: u8,
}

impl Limits {
    /// Asks the firmware.
    pub(super) fn query<P: Platform>(device: &Device<'_, P>) -> Result<Self, EthernetError> {
        let caps = device.capabilities();
        if caps.link_layer() != LinkLayer::Ethernet {
            return Err(EthernetError::NotEthernet);
        }
        let lacks = |what| Err(EthernetError::Unsupported { what });
        if !caps.hca.eth_net_offloads() {
            return lacks("Ethernet queues");
        }
        if !caps.hca.nic_flow_table() {
            return lacks("flow tables");
        }
        let offloads: EthernetOffloadCaps = group(device, CapabilityGroup::EthernetOffloads)?;
        let tables: FlowTableNicCap = group(device, CapabilityGroup::FlowTable)?;
        let receive = tables.flow_table_properties_nic_receive();
        if !receive.ft_support() {
            return lacks("flow tables for what is received");
        }
        let inline_mode = match offloads.wqe_inline_mode() {
            INLINE_L2 => InlineMode::L2,
            // A mode without a name is stricter than those with one, so all that there is goes inline.
            INLINE_BY_CONTEXT => InlineMode::from_number(device.nic_vport()?.min_wqe_inline_mode())
                .unwrap_or(InlineMode::TcpUdp),
            _ => InlineMode::None,
        };
        // Devices with real-time clocks only are asked for what they call default.
        let clock = |format| u8::from(format == 1);
        Ok(Self {
            checksums: {
                let mut all = EthernetSendFlags::empty();
                all.set(EthernetSendFlags::OUTER, offloads.csum_cap());
                all.set(
                    EthernetSendFlags::INNER,
                    offloads.csum_cap()
                        && (offloads.tunnel_stateless_vxlan() || offloads.tunnel_stateless_gre()),
                );
                all
            },
            vlan_insert: offloads.wqe_vlan_insert(),
            vlan_strip: offloads.vlan_cap(),
            max_lso: match offloads.max_lso_cap() {
                0 => 0,
                log => 1 << log.min(31),
            },
            multi_packet: offloads.enhanced_multi_pkt_send_wqe(),
            // `MLX5_MPWQE_LOG_NUM_STRIDES_BASE` and `_EXT_BASE` of Linux.
            log_strides: caps.hca.striding_rq().then_some({
                if caps.hca.ext_stride_num_range() {
                    3
                } else {
                    9
                }
            }),
            inline_mode,
            queue_inline_mode: match offloads.wqe_inline_mode() {
                INLINE_BY_CONTEXT => inline_mode.number(),
                _ => 0,
            },
            log_queue: caps.hca.log_max_wq_sz().min(MAX_LOG_QUEUE),
            log_table: receive.log_max_ft_size().min(31),
            modify_root: receive.modify_root(),
            queue_level: receive.max_ft_level().min(1),
            groups: 1 << caps.hca.log_max_current_mc_list().min(12),
            send_clock: clock(caps.hca.sq_ts_format()),
            receive_clock: clock(caps.hca.rq_ts_format()),
        })
    }

    /// Bytes from a frame's start that go into the request: headers with one VLAN tag, and as long as IPv4 and TCP headers
    /// get. IPv6 extension headers that go on behind that are not counted.
    pub(super) const fn min_inline(&self) -> usize {
        const TAGGED: usize = super::FRAME_OVERHEAD;
        const NETWORK: usize = 60;
        const TRANSPORT: usize = 60;
        match self.inline_mode {
            InlineMode::None => 0,
            InlineMode::L2 => TAGGED,
            InlineMode::Ip => TAGGED + NETWORK,
            InlineMode::TcpUdp => TAGGED + NETWORK + TRANSPORT,
        }
    }
}

/// The function's limits for several queues: asked for their domain only.
#[derive(Debug, Clone, Copy)]
pub(super) struct MultiQueueLimits {
    /// Binary logarithm of the size of an indirection table, if there are any.
    log_rqt_size: Option<u8>,
    /// Rules can count.
    pub(super) counters: bool,
    /// Targets of a rule.
    pub(super) max_targets: usize,
    /// `flow_table_fields_supported`: what rules can match.
    pub(super) fields: [u8; 16],
}

impl MultiQueueLimits {
    /// Asks the firmware.
    pub(super) fn query<P: Platform>(device: &Device<'_, P>) -> Result<Self, EthernetError> {
        let caps = device.capabilities();
        let offloads: EthernetOffloadCaps = group(device, CapabilityGroup::EthernetOffloads)?;
        let tables: FlowTableNicCap = group(device, CapabilityGroup::FlowTable)?;
        let receive = tables.flow_table_properties_nic_receive();
        let tables_of_queues = caps.hca.log_max_rqt() != 0 && offloads.rss_ind_tbl_cap() != 0;
        // The field for a size has 16 bits.
        let log_size = caps.hca.log_max_rqt_size().min(offloads.rss_ind_tbl_cap());
        Ok(Self {
            log_rqt_size: tables_of_queues.then_some(log_size.min(15)),
            counters: receive.flow_counter(),
            max_targets: match tables.nic_rx_multi_path_tirs() {
                true => 1 << receive.log_max_destination().min(16),
                false => 1,
            },
            fields: *receive.ft_field_support(),
        })
    }

    /// Entries of the largest indirection table; 0 if there is none.
    pub(super) fn rqt_size(&self) -> u32 {
        self.log_rqt_size.map_or(0, |log| 1 << log)
    }
}

/// The structure at the start of a capability group.
pub(super) fn group<T: FromBytes + FromZeros, P: Platform>(
    device: &Device<'_, P>,
    group: CapabilityGroup,
) -> Result<T, CommandError> {
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(group.query(CapabilityMode::Current));
    let mut image = [0; GROUP_LEN];
    device.execute_with(&query, TailIn::None, &mut image)?;
    Ok(T::read_from_prefix(&image).map_or_else(|_| T::new_zeroed(), |(caps, _)| caps))
}
