//! The device's capabilities, after negotiation.

use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, RoceCap};
pub use bareverbs_firmware_cmds::init_segment::FirmwareVersion;
use bareverbs_firmware_cmds::wqe::{READ_WQE, SEGMENT_UNIT};

use crate::types::gid::RoceVersion;
use crate::types::port::LinkLayer;
use crate::types::streams::DciStreams;

/// The capabilities in force: the firmware's groups as they are, and what verbs calls them.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities {
    /// Version of the firmware.
    pub firmware: FirmwareVersion,
    /// The software interface in force (ISSI 0 or 1).
    pub issi: u8,
    /// The general group, as negotiated.
    pub hca: HcaCap,
    /// The RoCE group, if the port is Ethernet and has it.
    pub roce: Option<RoceCap>,
    /// The atomic group, if there is one.
    pub atomic: Option<AtomicCaps>,
}

impl Capabilities {
    /// Nothing known yet.
    pub(crate) const fn none(firmware: FirmwareVersion) -> Self {
        Self {
            firmware,
            issi: 0,
            hca: HcaCap::ZERO,
            roce: None,
            atomic: None,
        }
    }

    /// The port's link layer.
    #[must_use]
    pub const fn link_layer(&self) -> LinkLayer {
        match self.hca.port_type() {
            0 if cfg!(feature = "infiniband") => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        }
    }

    /// Queue pairs that can exist.
    #[must_use]
    pub const fn max_qp(&self) -> u32 {
        1 << self.hca.log_max_qp()
    }

    /// Basic blocks (64 bytes) of the largest send queue, which is also the most work requests in a queue.
    #[must_use]
    pub const fn max_qp_wr(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_qp_sz() as u32)
    }

    /// Scatter/gather entries that an RDMA READ can have: `ibv_device_attr.max_sge_rd`. (Behind an XRC or DC segment it is
    /// fewer.)
    #[must_use]
    pub const fn max_sge_rd(&self) -> u32 {
        let longest = self.hca.max_wqe_sz_sq() as usize;
        let longest = if longest > READ_WQE {
            READ_WQE
        } else {
            longest
        };
        (longest.saturating_sub(2 * SEGMENT_UNIT) / SEGMENT_UNIT) as u32
    }

    /// Event queues that can exist.
    #[must_use]
    pub const fn max_eq(&self) -> u32 {
        match self.hca.max_num_eqs() {
            0 => 1 << self.hca.log_max_eq(),
            number => number as u32,
        }
    }

    /// Completion queues that can exist.
    #[must_use]
    pub const fn max_cq(&self) -> u32 {
        1 << self.hca.log_max_cq()
    }

    /// Completions in the largest completion queue.
    #[must_use]
    pub const fn max_cqe(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_cq_sz() as u32)
            .saturating_sub(1)
    }

    /// Shared receive queues that can exist.
    #[must_use]
    pub const fn max_srq(&self) -> u32 {
        1 << self.hca.log_max_srq()
    }

    /// Work requests in the largest shared receive queue.
    #[must_use]
    pub const fn max_srq_wr(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_srq_sz() as u32)
            .saturating_sub(1)
    }

    /// Memory regions that can exist.
    #[must_use]
    pub const fn max_mr(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_mkey() as u32)
    }

    /// Bytes of the longest memory region: `ibv_device_attr.max_mr_size`, from `log_max_mrw_sz`. The cards that are known
    /// say 64, which is no limit; 0 would be no region at all, and is taken as nothing said.
    #[must_use]
    pub const fn max_mr_size(&self) -> u64 {
        match self.hca.log_max_mrw_sz() {
            log @ 1..=63 => 1 << log,
            _ => u64::MAX,
        }
    }

    /// Protection domains that can exist.
    #[must_use]
    pub const fn max_pd(&self) -> u32 {
        1 << self.hca.log_max_pd()
    }

    /// RDMA READs and atomics that a QP can have outstanding at the other side (initiator depth).
    #[must_use]
    pub const fn max_initiator_depth(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_ra_req_qp() as u32)
    }

    /// RDMA READs and atomics of the other side that a QP can have outstanding (responder resources).
    #[must_use]
    pub const fn max_responder_resources(&self) -> u32 {
        1u32.wrapping_shl(self.hca.log_max_ra_res_qp() as u32)
    }

    /// Entries of the P_Key table: 128 << n, or none for a value that does not exist.
    #[must_use]
    pub const fn pkey_table_len(&self) -> usize {
        match self.hca.pkey_table_size() {
            steps @ 0..=5 => 128 << steps,
            _ => 0,
        }
    }

    /// Entries of the GID table of an Ethernet port.
    #[must_use]
    pub fn gid_table_len(&self) -> usize {
        self.roce
            .map_or(0, |roce| usize::from(roce.roce_address_table_size()))
    }

    /// The encapsulations that the device has.
    #[must_use]
    pub fn roce_versions(&self) -> [Option<RoceVersion>; 2] {
        let versions = self.roce.map_or(0, |roce| roce.roce_version());
        // Bit n means the version that is encoded as n.
        let version =
            |version: RoceVersion| (versions >> version.number() & 1 != 0).then_some(version);
        [version(RoceVersion::V1), version(RoceVersion::V2)]
    }

    /// Returns `true` if an RC queue pair can be looped back by force
    /// ([`AhAttr::force_loopback`](crate::AhAttr::force_loopback)).
    ///
    /// An Ethernet port says so for the state that RoCE is in, and bring-up enables RoCE wherever it is. For InfiniBand
    /// ports there is no such bit, and the vendor's own users of force loopback ask for none there.
    #[must_use]
    pub fn has_force_loopback(&self) -> bool {
        match (self.link_layer(), self.roce) {
            (LinkLayer::InfiniBand, _) => true,
            (LinkLayer::Ethernet, Some(roce)) => roce.fl_rc_qp_when_roce_enabled(),
            (LinkLayer::Ethernet, None) => self.hca.fl_rc_qp_when_roce_disabled(),
        }
    }

    /// Returns `true` if connections can have an alternate path ([`QpAttr::alt_ah_attr`](crate::QpAttr::alt_ah_attr)).
    #[must_use]
    pub const fn has_alternate_paths(&self) -> bool {
        matches!(self.link_layer(), LinkLayer::InfiniBand) && self.hca.apm()
    }

    /// Returns `true` if there are extended reliable connections. With ISSI 0 the device has them too, but not completions
    /// that could be assigned.
    #[must_use]
    pub const fn has_xrc(&self) -> bool {
        cfg!(feature = "xrc") && self.hca.xrc() && self.issi != 0
    }

    /// Returns `true` if there are null memory regions.
    #[must_use]
    pub const fn has_null_mr(&self) -> bool {
        self.hca.dump_fill_mkey()
    }

    /// Entries of the longest list of an indirect memory key; 0 if there are none.
    #[must_use]
    pub const fn max_klm_list_size(&self) -> u32 {
        match self.hca.log_max_klm_list_size() {
            0 => 0,
            log @ 1..=31 => 1 << log,
            _ => 1 << 31,
        }
    }

    /// The number of indirect keys that may lie between a work request and the memory: a key whose list names keys of memory
    /// is one. What goes through more fails as an error of protection.
    #[must_use]
    pub const fn max_indirection(&self) -> u8 {
        self.hca.max_indirection()
    }

    /// Returns `true` if there are memory windows, of both types.
    #[must_use]
    pub fn has_memory_windows(&self) -> bool {
        self.hca.imaicl()
    }

    /// Returns `true` if there are dynamic connections.
    #[must_use]
    pub fn has_dc(&self) -> bool {
        self.hca.dct()
    }

    /// The most streams that an initiator of dynamic connections can have (`dci_streams_caps` of `mlx5dv_query_device`).
    #[must_use]
    pub fn dci_streams(&self) -> Option<DciStreams> {
        let most = DciStreams {
            log_concurrent: self.hca.log_max_dci_stream_channels(),
            log_errored: self.hca.log_max_dci_errored_streams(),
        };
        (self.hca.dct() && most.log_concurrent != 0).then_some(most)
    }

    /// Returns `true` if atomics work, with their results in the host's byte order.
    #[must_use]
    pub fn has_atomics(&self) -> bool {
        self.has_atomics_of(AtomicCaps::atomic_size_qp)
    }

    /// Returns `true` if they do on dynamic connections.
    #[must_use]
    pub fn has_dc_atomics(&self) -> bool {
        self.has_atomics_of(AtomicCaps::atomic_size_dc)
    }

    fn has_atomics_of(&self, sizes: fn(&AtomicCaps) -> u16) -> bool {
        self.atomic.is_some_and(|atomic| {
            atomic.atomic_operations() & 0b11 == 0b11
                && sizes(&atomic) & 8 != 0
                && atomic.atomic_req_8B_endianness_mode() == 1
        })
    }
}

/// The identity of a card (QUERY_ADAPTER).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adapter {
    /// IEEE company number of the vendor; 0x2c9 is Mellanox.
    pub ieee_vendor_id: u32,
    /// The board's identifier (PSID), ASCII padded with zeros.
    pub board_id: [u8; 16],
}

impl Adapter {
    /// The board's identifier as text.
    #[must_use]
    pub fn board_id(&self) -> &str {
        let len = self
            .board_id
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(16);
        core::str::from_utf8(&self.board_id[..len]).unwrap_or("")
    }
}
