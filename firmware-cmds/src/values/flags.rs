//! Fields of which each bit means something by itself.

use bitflags::bitflags;

bitflags! {
    /// `opt_param_mask` of the QP transitions: which optional attributes of the context count. Required ones need no bit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct OptParamMask: u32 {
        /// Alternate path.
        const ALT_ADDR_PATH = 1 << 0;
        /// Remote READ allowed.
        const RRE = 1 << 1;
        /// Remote atomics allowed.
        const RAE = 1 << 2;
        /// Remote WRITE allowed.
        const RWE = 1 << 3;
        /// All three.
        const ACCESS = Self::RRE.bits() | Self::RAE.bits() | Self::RWE.bits();
        /// P_Key index.
        const PKEY_INDEX = 1 << 4;
        /// Q_Key.
        const Q_KEY = 1 << 5;
        /// Minimum RNR NAK timer.
        const RNR_TIMEOUT = 1 << 6;
        /// Primary path.
        const PRIMARY_ADDR_PATH = 1 << 7;
        /// Initiator depth.
        const SRA_MAX = 1 << 8;
        /// Responder resources.
        const RRA_MAX = 1 << 9;
        /// Path migration state.
        const PM_STATE = 1 << 10;
        /// Retries.
        const RETRY_COUNT = 1 << 12;
        /// RNR retries.
        const RNR_RETRY = 1 << 13;
        /// ACK timeout.
        const ACK_TIMEOUT = 1 << 14;
        /// Port of a bond.
        const LAG_TX_AFF = 1 << 15;
        /// Port.
        const PRI_PORT = 1 << 16;
        /// Shared receive queue.
        const SRQN = 1 << 18;
        /// Receive CQ.
        const CQN_RCV = 1 << 19;
        /// DC handshake.
        const DC_HS = 1 << 20;
        /// DC key.
        const DC_KEY = 1 << 21;
        /// Queue counters.
        const COUNTER_SET_ID = 1 << 25;
    }
}

bitflags! {
    /// `modify_field_select` of MODIFY_CQ with [`ModifyCq::Modify`](super::ModifyCq::Modify).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct ModifyCqFields: u32 {
        /// Moderation period.
        const PERIOD = 1 << 0;
        /// Moderation count.
        const COUNT = 1 << 1;
        /// Ignore overruns.
        const OVERRUN = 1 << 2;
        /// Event queue.
        const EQN = 1 << 3;
        /// Moderation mode.
        const PERIOD_MODE = 1 << 4;
    }
}

bitflags! {
    /// `modify_field_select` of MODIFY_CQ with [`ModifyCq::Resize`](super::ModifyCq::Resize).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct ResizeCqFields: u32 {
        /// Number of entries.
        const LOG_CQ_SIZE = 1 << 0;
        /// Where the buffer begins in its first page.
        const PAGE_OFFSET = 1 << 1;
        /// Page size.
        const LOG_PAGE_SIZE = 1 << 2;
    }
}

bitflags! {
    /// `op_mod` of MAD_IFC.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct MadIfcMode: u16 {
        /// Do not check the M_Key.
        const IGNORE_MKEY = 1 << 0;
        /// Do not check the B_Key.
        const IGNORE_BKEY = 1 << 1;
    }
}

bitflags! {
    /// Atomics that a device can do, `atomic_caps.atomic_operations`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct AtomicOperations: u16 {
        /// Compare and swap.
        const COMPARE_SWAP = 1 << 0;
        /// Fetch and add.
        const FETCH_ADD = 1 << 1;
        /// Compare and swap under masks.
        const MASKED_COMPARE_SWAP = 1 << 2;
        /// Fetch and add under masks.
        const MASKED_FETCH_ADD = 1 << 3;
    }
}

bitflags! {
    /// Network protocols that a device's RoCE can do, `roce_cap.l3_type`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RoceL3Types: u8 {
        /// RoCE v1.
        const GRH = 1 << 0;
        /// IPv4.
        const IPV4 = 1 << 1;
        /// IPv6.
        const IPV6 = 1 << 2;
    }
}
