//! The attributes of a device, its port and its tables.

// UNSAFETY: writes to structures of C.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr;

use bareverbs_node::verbs::{
    Capabilities, EthernetDomain, GidEntry, LinkLayer, LinkStatus, Platform, PortAttr, PortState,
    RoceVersion,
};

use crate::abi::numbers::*;
use crate::abi::objects::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_port_attr,
    ibv_rss_caps, ibv_values_ex,
};
use crate::ethernet::rss;
use crate::process::failure::{Errno, Result, as_errno, as_number, as_status};
use crate::process::hca::{Hca, MAX_CQ, MAX_QP, MAX_SRQ, OWN_QUEUES, P};
use crate::verbs::context::{ContextObject, context};

/// The port that every device has.
pub(crate) const PORT: u8 = 1;
/// Address handles are memory of the program only.
const MANY: c_int = 1 << 30;
/// Blocks of the send queue that a request takes in the type of QP where it takes most: as `mlx5_ib_calc_max_qp_wr` has it.
const LARGEST_REQUEST: u32 = 4;
/// Microseconds for which an event of a CQ can be held back (`cq_period` of the CQ's context).
const MAX_CQ_PERIOD: u16 = 0xfff;
/// The bits of a completion's time, as Linux's driver says it.
const TIMESTAMP_MASK: u64 = u64::MAX >> 1;

fn int(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}

/// The objects of a kind that a program can have: those of the card without those of the connection manager.
fn without_own(of_card: u32) -> c_int {
    int(of_card).saturating_sub(int(OWN_QUEUES)).max(0)
}

/// Scatter/gather entries that each request can have, as Linux has it: those of a READ, if receives can have as many. Other
/// operations can have more.
fn max_sge(caps: &Capabilities) -> u32 {
    caps.max_sge_rd()
        .min(u32::from(caps.hca.max_wqe_sz_rq()) / 16)
}

fn device_attr(context: &ContextObject) -> Result<ibv_device_attr> {
    let hca = context.hca;
    let caps = hca.device.capabilities();
    let port = hca.device.query_port()?;
    // SAFETY: numbers may be zero.
    let mut attr: ibv_device_attr = unsafe { zeroed() };
    let firmware = caps.firmware.to_string();
    for (to, from) in attr.fw_ver.iter_mut().take(63).zip(firmware.bytes()) {
        *to = from as c_char;
    }
    let srq_sge = (u32::from(caps.hca.max_wqe_sz_rq()).min(2048) / 16).saturating_sub(1);
    let mut flags =
        IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN;
    if caps.has_alternate_paths() {
        flags |= IBV_DEVICE_AUTO_PATH_MIG;
    }
    if caps.has_xrc() {
        flags |= IBV_DEVICE_XRC;
    }
    if caps.has_memory_windows() {
        flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        // Each is a key, as a region is.
        attr.max_mw = int(caps.max_mr());
    }
    // SEND with invalidation and local invalidation, by changes of keys.
    if !caps.hca.umr_modify_entity_size_disabled() {
        flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS;
    }
    if port.link_layer == LinkLayer::Ethernet && caps.hca.nic_flow_table() {
        flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
    }
    if frames(context).is_some_and(EthernetDomain::has_checksums) {
        flags |= IBV_DEVICE_RAW_IP_CSUM;
    }
    attr.node_guid = port.node_guid.to_be();
    attr.sys_image_guid = port.system_image_guid.to_be();
    attr.max_mr_size = caps.max_mr_size();
    attr.page_size_cap = !0xfff;
    attr.vendor_id = hca.device.query_adapter()?.ieee_vendor_id;
    attr.vendor_part_id = hca.device.platform().device_id().unwrap_or(0).into();
    attr.max_qp = without_own(caps.max_qp()).min(int(MAX_QP));
    attr.max_qp_wr = int(caps.max_qp_wr() / LARGEST_REQUEST);
    attr.device_cap_flags = flags;
    attr.max_sge = int(max_sge(caps));
    attr.max_sge_rd = int(caps.max_sge_rd());
    attr.max_cq = without_own(caps.max_cq()).min(int(MAX_CQ));
    attr.max_cqe = int(caps.max_cqe()).min((1 << 22) - 1);
    attr.max_mr = without_own(caps.max_mr());
    attr.max_pd = without_own(caps.max_pd());
    attr.max_qp_rd_atom = int(caps.max_responder_resources());
    attr.max_qp_init_rd_atom = int(caps.max_initiator_depth());
    attr.max_res_rd_atom = attr.max_qp_rd_atom.saturating_mul(attr.max_qp);
    attr.atomic_cap = if caps.has_atomics() {
        IBV_ATOMIC_HCA
    } else {
        IBV_ATOMIC_NONE
    };
    attr.max_mcast_grp = 1 << caps.hca.log_max_mcg();
    attr.max_mcast_qp_attach = int(caps.hca.max_qp_mcg());
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_ah = MANY;
    attr.max_srq = int(caps.max_srq()).min(int(MAX_SRQ));
    attr.max_srq_wr = int(caps.max_srq_wr());
    attr.max_srq_sge = int(srq_sge);
    attr.max_pkeys = pkeys(&port);
    attr.local_ca_ack_delay = caps.hca.local_ca_ack_delay();
    attr.phys_port_cnt = 1;
    Ok(attr)
}

fn pkeys(port: &PortAttr) -> u16 {
    match port.link_layer {
        LinkLayer::Ethernet => 1,
        LinkLayer::InfiniBand => u16::try_from(port.pkey_table_len).unwrap_or(u16::MAX),
    }
}

/// Lanes and the speed of each (`active_width`, `active_speed`): as `mlx5_ib` has them for a port of this rate in Gb/s. An
/// Ethernet port that is down has what `mlx5_query_port_roce` begins with.
fn width_and_speed(link_layer: LinkLayer, gbps: u32) -> (u8, u8) {
    const ONE: u8 = 1;
    const TWO: u8 = 16;
    const FOUR: u8 = 2;
    const EIGHT: u8 = 4;
    const SDR: u8 = 1;
    const QDR: u8 = 4;
    const FDR: u8 = 16;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    const NDR: u8 = 128;
    match gbps {
        0 if link_layer == LinkLayer::Ethernet => (FOUR, QDR),
        0..10 => (ONE, SDR),
        10..25 => (ONE, QDR),
        25..40 => (ONE, EDR),
        40..50 => (FOUR, QDR),
        50..56 => (TWO, EDR),
        56..100 => (FOUR, FDR),
        100..200 => (FOUR, EDR),
        200..400 => (FOUR, HDR),
        400..800 => (FOUR, NDR),
        _ => (EIGHT, NDR),
    }
}

/// Capabilities and flags of a port, as Linux has them: those of RoCE from `mlx5_query_port_roce` (mlx5/main.c) where RoCE is on; the
/// mask of an InfiniBand port but for the bit of the kind of GIDs, where the mask has another meaning (`make_port_cap_flags`
/// of core/uverbs.h).
fn port_flags(link_layer: LinkLayer, roce: bool, cap_mask: u32, grh_required: bool) -> (u32, u8) {
    let grh = |required| u8::from(required) * IBV_QPF_GRH_REQUIRED;
    match link_layer {
        LinkLayer::Ethernet if roce => (IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS, grh(true)),
        LinkLayer::Ethernet => (0, grh(false)),
        LinkLayer::InfiniBand => (cap_mask & !IBV_PORT_IP_BASED_GIDS, grh(grh_required)),
    }
}

fn port_attr(context: &ContextObject, port_num: u8) -> Result<ibv_port_attr> {
    if port_num != PORT {
        return Err(Errno::EINVAL);
    }
    let device = context.hca.device;
    let port = device.query_port()?;
    // SAFETY: numbers may be zero.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    attr.state = match port.state {
        PortState::Down => IBV_PORT_DOWN,
        PortState::Init => IBV_PORT_INIT,
        PortState::Armed => IBV_PORT_ARMED,
        PortState::Active => IBV_PORT_ACTIVE,
        PortState::ActiveDefer => IBV_PORT_ACTIVE_DEFER,
        PortState::Unknown(_) => IBV_PORT_NOP,
    };
    attr.phys_state = match port.state {
        PortState::Down => match device.query_link()? {
            LinkStatus::NoCarrier => PHYS_STATE_POLLING,
            _ => PHYS_STATE_DISABLED,
        },
        _ => PHYS_STATE_LINK_UP,
    };
    attr.max_mtu = port.max_mtu.number().into();
    attr.active_mtu = port.active_mtu.number().into();
    attr.gid_tbl_len = int(port.gid_table_len);
    let roce = port.gid_table_len > 0;
    (attr.port_cap_flags, attr.flags) =
        port_flags(port.link_layer, roce, port.cap_mask, port.grh_required);
    attr.max_msg_sz = u32::try_from(port.max_msg_size).unwrap_or(u32::MAX);
    attr.pkey_tbl_len = pkeys(&port);
    attr.lid = port.lid;
    attr.sm_lid = port.sm_lid;
    attr.lmc = port.lmc;
    // Ethernet ports have no virtual lanes, and `mlx5_query_port_roce` leaves the number 0.
    attr.max_vl_num = match port.link_layer {
        LinkLayer::Ethernet => 0,
        LinkLayer::InfiniBand => 1,
    };
    attr.sm_sl = port.sm_sl;
    attr.subnet_timeout = port.subnet_timeout;
    (attr.active_width, attr.active_speed) =
        width_and_speed(port.link_layer, port.rate_mbps / 1000);
    attr.link_layer = match port.link_layer {
        LinkLayer::Ethernet => IBV_LINK_LAYER_ETHERNET,
        LinkLayer::InfiniBand => IBV_LINK_LAYER_INFINIBAND,
    };
    Ok(attr)
}

/// Queries the rate that a port's link carries, in units of 100 Mb/s: `ibv_query_port_speed`.
///
/// # Safety
/// The context is open, and `port_speed` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `port_speed` can be written.
        let context = unsafe { self::context(context) }?;
        if port_num != u32::from(PORT) {
            return Err(Errno::EINVAL);
        }
        let port = context.hca.device.query_port()?;
        // SAFETY: the caller promises that the context is open, and `port_speed` can be written.
        unsafe { port_speed.write(u64::from(port.rate_mbps) / 100) };
        Ok(())
    })
}

/// The device's limits: `ibv_query_device`.
///
/// # Safety
/// The context is open, and `attr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `attr` can be written.
        let context = unsafe { self::context(context) }?;
        let found = device_attr(context)?;
        // SAFETY: the caller promises that the context is open, and `attr` can be written.
        unsafe { attr.write(found) };
        Ok(())
    })
}

/// `ibv_query_device_ex`, from the table of functions.
///
/// # Safety
/// The context is open, and `attr_size` bytes at `attr` can be written.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise: the input begins with its `comp_mask`, of which nothing is known.
        if unsafe { input.cast::<u32>().as_ref() }.is_some_and(|mask| *mask != 0) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the context is open, and `attr_size` bytes at `attr` can be written.
        let context = unsafe { self::context(context) }?;
        // SAFETY: numbers may be zero.
        let mut found: ibv_device_attr_ex = unsafe { zeroed() };
        found.orig_attr = device_attr(context)?;
        found.device_cap_flags_ex = found.orig_attr.device_cap_flags.into();
        found.phys_port_cnt_ex = 1;
        if let Some(khz) = context.hca.device.clock_khz() {
            found.completion_timestamp_mask = TIMESTAMP_MASK;
            found.hca_core_clock = khz.into();
        }
        if context.hca.device.capabilities().hca.cq_moderation() {
            found.cq_mod_caps.max_cq_count = u16::MAX;
            found.cq_mod_caps.max_cq_period = MAX_CQ_PERIOD;
        }
        if let Some(memory) = context.hca.device.query_device_memory()? {
            found.max_dm_size = memory.max_memic_size().into();
        }
        packets(context, &mut found);
        // SAFETY: the caller promises that the context is open, and `attr_size` bytes at `attr` can be written.
        unsafe { write_part(&found, attr, attr_size) };
        Ok(())
    })
}

/// The part that the context's raw packet QPs have in common, if the port has any.
fn frames(context: &ContextObject) -> Option<&EthernetDomain<'static, P>> {
    let caps = context.hca.device.capabilities();
    if caps.link_layer() != LinkLayer::Ethernet || !caps.hca.nic_flow_table() {
        return None;
    }
    context.frames.domain(context.hca.device).ok()
}

/// The capabilities of raw packet QPs and receive queues.
fn packets(context: &ContextObject, found: &mut ibv_device_attr_ex) {
    let caps = context.hca.device.capabilities();
    let Some(domain) = frames(context) else {
        return;
    };
    if domain.has_checksums() {
        found.raw_packet_caps |= IBV_RAW_PACKET_CAP_IP_CSUM;
    }
    if domain.has_vlan_strip() {
        found.raw_packet_caps |= IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
    }
    found.max_wq_type_rq = 1 << caps.hca.log_max_rq();
    let table = domain.max_indirection_table();
    if table != 0 {
        found.rss_caps = ibv_rss_caps {
            supported_qpts: 1 << IBV_QPT_RAW_PACKET,
            max_rwq_indirection_tables: 1 << caps.hca.log_max_rqt(),
            max_rwq_indirection_table_size: table,
            rx_hash_fields_mask: rss::FIELDS,
            rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ,
        };
    }
}

/// `ibv_query_rt_values_ex`, from the table of functions: the device's clock, in cycles, where its nanoseconds would be.
///
/// # Safety
/// The context is open, and `values` is a structure of the headers.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `values` is a structure of the headers.
        let (context, values) = unsafe {
            let context = self::context(context)?;
            (context, values.as_mut().ok_or(Errno::EINVAL)?)
        };
        let device = context.hca.device;
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::EINVAL);
        }
        let asked = values.comp_mask;
        // What was not asked for, or is not known, is not among the answers.
        values.comp_mask = 0;
        if asked != 0 && device.clock_khz().is_some() {
            values.raw_clock = libc::timespec {
                tv_sec: 0,
                tv_nsec: device.clock()? as i64,
            };
            values.comp_mask = asked;
        }
        Ok(())
    })
}

/// Writes as much of a structure as an older program has room for, and zeros where a newer one has more.
///
/// # Safety
/// `size` bytes at `to` can be written.
unsafe fn write_part<T>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise; `known` bytes are part of both.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

/// `ibv_query_port`, from the table of functions.
///
/// # Safety
/// The context is open, and `size` bytes at `attr` can be written.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `size` bytes at `attr` can be written.
        let found = port_attr(unsafe { self::context(context) }?, port_num)?;
        // SAFETY: the caller promises that the context is open, and `size` bytes at `attr` can be written.
        unsafe { write_part(&found, attr, size) };
        Ok(())
    })
}

/// The port's state, for programs built with headers that have no `port_cap_flags2`: `ibv_query_port`.
///
/// # Safety
/// The context is open, and the structure as it was then can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    const OLD: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller promises that the context is open, and the structure as it was then can be written.
    unsafe { query_port(context, port_num, attr, OLD) }
}

/// An entry of the port's GID table; `None` for one that is empty.
pub(crate) fn gid_entry(hca: &Hca, index: u32) -> Result<Option<(ibv_gid, u32)>> {
    let index = u16::try_from(index).map_err(|_| Errno::EINVAL)?;
    let device = hca.device;
    if device.capabilities().link_layer() == LinkLayer::InfiniBand {
        let gid = device.query_infiniband_gid(index)?;
        return Ok((!gid.is_zero()).then_some((ibv_gid { raw: gid.0 }, IBV_GID_TYPE_IB)));
    }
    if usize::from(index) >= device.gid_table_len() {
        return Err(Errno::EINVAL);
    }
    let entry = device.port_gid(index);
    Ok(entry.map(|GidEntry { gid, version, .. }| {
        let version = match version {
            RoceVersion::V1 => IBV_GID_TYPE_ROCE_V1,
            RoceVersion::V2 => IBV_GID_TYPE_ROCE_V2,
        };
        (ibv_gid { raw: gid.0 }, version)
    }))
}

/// A GID of the port, zero for an empty entry: `ibv_query_gid`.
///
/// # Safety
/// The context is open, and `gid` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the context is open, and `gid` can be written.
        let context = unsafe { self::context(context) }?;
        let index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
        if port_num != PORT {
            return Err(Errno::EINVAL);
        }
        let found = gid_entry(context.hca, index)?;
        // SAFETY: the caller promises that the context is open, and `gid` can be written.
        unsafe { gid.write(found.map_or(ibv_gid { raw: [0; 16] }, |(gid, _)| gid)) };
        Ok(())
    })
}

/// Queries the type of a GID (`enum ibv_gid_type_sysfs`): `ibv_query_gid_type`, which the programs of Debian's `ibverbs-utils`
/// take from libibverbs' private part.
///
/// # Safety
/// The context is open, and `gid_type` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    gid_type: *mut c_uint,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the context is open, and `gid_type` can be written.
        let context = unsafe { self::context(context) }?;
        if port_num != PORT {
            return Err(Errno::EINVAL);
        }
        let found = match gid_entry(context.hca, index)? {
            Some((_, IBV_GID_TYPE_ROCE_V2)) => IBV_GID_TYPE_SYSFS_ROCE_V2,
            _ => IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
        };
        // SAFETY: the caller promises that the context is open, and `gid_type` can be written.
        unsafe { gid_type.write(found) };
        Ok(())
    })
}

fn entry(gid: (ibv_gid, u32), index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: gid.0,
        gid_index: index,
        port_num: PORT.into(),
        gid_type: gid.1,
        ndev_ifindex: 0,
    }
}

/// An entry of the GID table: `ibv_query_gid_ex`. ENODATA for an empty one.
///
/// # Safety
/// The context is open, and `entry_size` bytes at `entry` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `entry_size` bytes at `entry` can be written.
        let context = unsafe { self::context(context) }?;
        if port_num != u32::from(PORT) || flags != 0 {
            return Err(Errno::EINVAL);
        }
        let found = gid_entry(context.hca, gid_index)?.ok_or(Errno(libc::ENODATA))?;
        // SAFETY: the caller promises that the context is open, and `entry_size` bytes at `entry` can be written.
        unsafe { write_part(&self::entry(found, gid_index), entry, entry_size) };
        Ok(())
    })
}

/// The entries of the GID table that are not empty: `ibv_query_gid_table`. Returns how many.
///
/// # Safety
/// The context is open, and `max_entries` entries of `entry_size` bytes at `entries` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let mut written = 0;
    let result = as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `max_entries` entries of `entry_size` bytes at `entries`
        // can be written.
        let context = unsafe { self::context(context) }?;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let length = match context.hca.device.capabilities().link_layer() {
            LinkLayer::Ethernet => context.hca.device.gid_table_len(),
            LinkLayer::InfiniBand => context.hca.device.query_port()?.gid_table_len,
        };
        for index in 0..length as u32 {
            let Some(found) = gid_entry(context.hca, index)? else {
                continue;
            };
            if written == max_entries {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller promises that the context is open, and `max_entries` entries of `entry_size` bytes at
            // `entries` can be written.
            unsafe {
                let to = entries.byte_add(written * entry_size);
                write_part(&entry(found, index), to, entry_size);
            }
            written += 1;
        }
        Ok(())
    });
    match result {
        0 => written as isize,
        errno => -(errno as isize),
    }
}

/// An entry of the P_Key table in network order: `ibv_query_pkey`.
///
/// # Safety
/// The context is open, and `pkey` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the context is open, and `pkey` can be written.
        let found = pkey_at(unsafe { self::context(context) }?, port_num, index)?;
        // SAFETY: the caller promises that the context is open, and `pkey` can be written.
        unsafe { pkey.write(found.to_be()) };
        Ok(())
    })
}

fn pkey_at(context: &ContextObject, port_num: u8, index: c_int) -> Result<u16> {
    let device = context.hca.device;
    // rdma-core reads a file for each.
    let none = Errno(libc::ENOENT);
    let index = u16::try_from(index).map_err(|_| none)?;
    if port_num != PORT || index >= pkeys(&device.query_port()?) {
        return Err(none);
    }
    Ok(device.query_pkey(index)?)
}

/// The index of a P_Key, given in network order: `ibv_get_pkey_index`.
///
/// # Safety
/// The context is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    pkey: u16,
) -> c_int {
    as_number(|| {
        // SAFETY: the caller promises that the context is open.
        let context = unsafe { self::context(context) }?;
        let length = pkeys(&context.hca.device.query_port()?);
        for index in 0..c_int::from(length) {
            if pkey_at(context, port_num, index)? == u16::from_be(pkey) {
                return Ok(index);
            }
        }
        Err(Errno(libc::ENOENT))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // `IB_PORT_CM_SUP` is bit 16 of include/rdma/ib_verbs.h, `IB_UVERBS_PCF_IP_BASED_GIDS` bit 26 and
    // `IB_UVERBS_QPF_GRH_REQUIRED` bit 0 of include/uapi/rdma/ib_user_ioctl_verbs.h.
    #[test]
    fn flags_of_ports() {
        use LinkLayer::{Ethernet, InfiniBand};
        for (link_layer, roce, cap_mask, grh, expected) in [
            (Ethernet, true, 0, false, (1 << 16 | 1 << 26, 1)),
            (Ethernet, false, 0, false, (0, 0)),
            (InfiniBand, true, 0x0259_486a, false, (0x0259_486a, 0)),
            (InfiniBand, true, u32::MAX, true, (!(1 << 26), 1)),
        ] {
            let flags = port_flags(link_layer, roce, cap_mask, grh);
            assert_eq!(flags, expected, "{link_layer:?}, {roce}");
        }
    }

    #[test]
    fn rates_are_lanes_times_speeds() {
        // Gb/s of a lane by the code of its speed.
        let speed = |code| match code {
            1 => 2.5,
            4 => 10.0,
            16 => 14.0,
            32 => 25.0,
            64 => 50.0,
            128 => 100.0,
            _ => panic!("{code}"),
        };
        let lanes = |code| match code {
            1 => 1.0,
            2 => 4.0,
            4 => 8.0,
            16 => 2.0,
            _ => panic!("{code}"),
        };
        for gbps in [10, 25, 40, 50, 56, 100, 200, 400, 800] {
            let (width, code) = width_and_speed(LinkLayer::Ethernet, gbps);
            assert_eq!(lanes(width) * speed(code), f64::from(gbps), "{gbps}");
        }
        // `ibv_devinfo -v` of a ConnectX-6 Lx and a ConnectX-5 whose ports are down: 4X (2), 10.0 Gbps (4).
        assert_eq!(width_and_speed(LinkLayer::Ethernet, 0), (2, 4));
    }

    #[test]
    fn older_and_newer_programs_get_what_they_have_room_for() {
        let from = [1_u8, 2, 3, 4];
        let mut to = [9_u8; 8];
        // SAFETY: both sizes fit into the array.
        unsafe { write_part(&from, to.as_mut_ptr().cast(), 2) };
        assert_eq!(to, [1, 2, 9, 9, 9, 9, 9, 9]);
        // SAFETY: the same.
        unsafe { write_part(&from, to.as_mut_ptr().cast(), 6) };
        assert_eq!(to, [1, 2, 3, 4, 0, 0, 9, 9]);
    }
}
