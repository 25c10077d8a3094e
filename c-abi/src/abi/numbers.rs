//! Numbers of the headers' enumerations.

use std::ffi::{c_int, c_uint};

pub const IBV_NODE_CA: c_int = 1;
pub const IBV_TRANSPORT_IB: c_int = 0;

pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// `flags` of `struct ibv_port_attr`.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1;

/// `port_cap_flags` of it.
pub const IBV_PORT_CM_SUP: u32 = 1 << 16;
pub const IBV_PORT_IP_BASED_GIDS: u32 = 1 << 26;

pub const IBV_PORT_NOP: c_int = 0;
pub const IBV_PORT_DOWN: c_int = 1;
pub const IBV_PORT_INIT: c_int = 2;
pub const IBV_PORT_ARMED: c_int = 3;
pub const IBV_PORT_ACTIVE: c_int = 4;
pub const IBV_PORT_ACTIVE_DEFER: c_int = 5;

/// `phys_state` of `struct ibv_port_attr`: IBTA volume 2, PortPhysicalState.
pub const PHYS_STATE_POLLING: u8 = 2;
pub const PHYS_STATE_DISABLED: u8 = 3;
pub const PHYS_STATE_LINK_UP: u8 = 5;

pub const IBV_ATOMIC_NONE: c_int = 0;
pub const IBV_ATOMIC_HCA: c_int = 1;

pub const IBV_DEVICE_AUTO_PATH_MIG: c_uint = 1 << 4;
pub const IBV_DEVICE_PORT_ACTIVE_EVENT: c_uint = 1 << 10;
pub const IBV_DEVICE_SYS_IMAGE_GUID: c_uint = 1 << 11;
pub const IBV_DEVICE_RC_RNR_NAK_GEN: c_uint = 1 << 12;
pub const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub const IBV_DEVICE_XRC: c_uint = 1 << 20;
pub const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
pub const IBV_DEVICE_RAW_IP_CSUM: c_uint = 1 << 26;
pub const IBV_DEVICE_MANAGED_FLOW_STEERING: c_uint = 1 << 29;

pub const IBV_RAW_PACKET_CAP_CVLAN_STRIPPING: u32 = 1 << 0;
pub const IBV_RAW_PACKET_CAP_IP_CSUM: u32 = 1 << 2;

pub const IBV_MW_TYPE_1: c_int = 1;
pub const IBV_MW_TYPE_2: c_int = 2;

pub const IBV_ACCESS_MW_BIND: c_uint = 1 << 4;
pub const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;

pub const IBV_GID_TYPE_IB: u32 = 0;
pub const IBV_GID_TYPE_ROCE_V1: u32 = 1;
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;
/// `enum ibv_gid_type_sysfs` of libibverbs' `driver.h`, which `ibv_query_gid_type` answers with.
pub const IBV_GID_TYPE_SYSFS_IB_ROCE_V1: c_uint = 0;
pub const IBV_GID_TYPE_SYSFS_ROCE_V2: c_uint = 1;

pub const IBV_QPT_RC: c_int = 2;
pub const IBV_QPT_UC: c_int = 3;
pub const IBV_QPT_UD: c_int = 4;
pub const IBV_QPT_RAW_PACKET: c_int = 8;
pub const IBV_QPT_DRIVER: c_int = 0xff;
pub const IBV_QPT_XRC_SEND: c_int = 9;
pub const IBV_QPT_XRC_RECV: c_int = 10;

pub const IBV_QP_INIT_ATTR_PD: u32 = 1 << 0;
pub const IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub const IBV_QP_INIT_ATTR_IND_TABLE: u32 = 1 << 4;
pub const IBV_QP_INIT_ATTR_RX_HASH: u32 = 1 << 5;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub const IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: u32 = 1 << 1;
pub const IBV_QP_CREATE_SCATTER_FCS: u32 = 1 << 8;
pub const IBV_QP_CREATE_CVLAN_STRIPPING: u32 = 1 << 9;
pub const IBV_WQT_RQ: c_int = 0;
pub const IBV_WQ_INIT_ATTR_FLAGS: u32 = 1 << 0;
pub const IBV_WQ_FLAGS_CVLAN_STRIPPING: u32 = 1 << 0;
pub const IBV_WQS_RESET: c_int = 0;
pub const IBV_WQS_RDY: c_int = 1;
pub const IBV_WQS_ERR: c_int = 2;
pub const IBV_WQ_ATTR_STATE: u32 = 1 << 0;
pub const IBV_WQ_ATTR_CURR_STATE: u32 = 1 << 1;
pub const IBV_WQ_ATTR_FLAGS: u32 = 1 << 2;

pub const IBV_RX_HASH_FUNC_TOEPLITZ: u8 = 1 << 0;
pub const IBV_RX_HASH_SRC_IPV4: u64 = 1 << 0;
pub const IBV_RX_HASH_DST_IPV4: u64 = 1 << 1;
pub const IBV_RX_HASH_SRC_IPV6: u64 = 1 << 2;
pub const IBV_RX_HASH_DST_IPV6: u64 = 1 << 3;
pub const IBV_RX_HASH_SRC_PORT_TCP: u64 = 1 << 4;
pub const IBV_RX_HASH_DST_PORT_TCP: u64 = 1 << 5;
pub const IBV_RX_HASH_SRC_PORT_UDP: u64 = 1 << 6;
pub const IBV_RX_HASH_DST_PORT_UDP: u64 = 1 << 7;

pub const IBV_QP_EX_WITH_ALL_KNOWN: u64 = (1 << 13) - 1;

pub const IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1 << 0;
pub const IBV_REREG_MR_CHANGE_PD: c_int = 1 << 1;
pub const IBV_REREG_MR_CHANGE_ACCESS: c_int = 1 << 2;
pub const IBV_REREG_MR_ERR_INPUT: c_int = -1;

pub const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
pub const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;
pub const IBV_FORK_UNNEEDED: c_int = 2;
pub const IBV_CQ_ATTR_MODERATE: u32 = 1 << 0;
pub const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1 << 0;
pub const IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;
pub const IBV_SRQ_INIT_ATTR_XRCD: u32 = 1 << 2;
pub const IBV_SRQ_INIT_ATTR_CQ: u32 = 1 << 3;
pub const IBV_SRQT_BASIC: c_int = 0;
pub const IBV_SRQT_XRC: c_int = 1;
pub const IBV_SRQ_MAX_WR: c_int = 1 << 0;
pub const IBV_SRQ_LIMIT: c_int = 1 << 1;

pub const IBV_XRCD_INIT_ATTR_FD: u32 = 1 << 0;
pub const IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 1 << 1;

pub const IBV_WR_RDMA_WRITE: c_int = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub const IBV_WR_SEND: c_int = 2;
pub const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub const IBV_WR_RDMA_READ: c_int = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub const IBV_WR_LOCAL_INV: c_int = 7;
pub const IBV_WR_BIND_MW: c_int = 8;
pub const IBV_WR_SEND_WITH_INV: c_int = 9;

pub const IBV_SEND_INLINE: c_uint = 1 << 3;
pub const IBV_SEND_IP_CSUM: c_uint = 1 << 4;

pub const IBV_FLOW_ATTR_NORMAL: c_int = 0;
pub const IBV_FLOW_ATTR_ALL_DEFAULT: c_int = 1;
pub const IBV_FLOW_ATTR_MC_DEFAULT: c_int = 2;
pub const IBV_FLOW_ATTR_SNIFFER: c_int = 3;
pub const IBV_FLOW_SPEC_ETH: c_int = 0x20;
pub const IBV_FLOW_SPEC_IPV4: c_int = 0x30;
pub const IBV_FLOW_SPEC_IPV6: c_int = 0x31;
pub const IBV_FLOW_SPEC_IPV4_EXT: c_int = 0x32;
pub const IBV_FLOW_SPEC_TCP: c_int = 0x40;
pub const IBV_FLOW_SPEC_UDP: c_int = 0x41;
pub const IBV_FLOW_SPEC_ACTION_TAG: c_int = 0x1000;
pub const IBV_FLOW_SPEC_ACTION_DROP: c_int = 0x1001;
pub const IBV_FLOW_SPEC_ACTION_COUNT: c_int = 0x1003;

pub const IBV_COUNTER_PACKETS: c_int = 0;
pub const IBV_COUNTER_BYTES: c_int = 1;
pub const IBV_READ_COUNTERS_ATTR_PREFER_CACHED: u32 = 1 << 0;

pub const IBV_WC_SEND: c_int = 0;
pub const IBV_WC_RDMA_WRITE: c_int = 1;
pub const IBV_WC_RDMA_READ: c_int = 2;
pub const IBV_WC_COMP_SWAP: c_int = 3;
pub const IBV_WC_FETCH_ADD: c_int = 4;
pub const IBV_WC_BIND_MW: c_int = 5;
pub const IBV_WC_LOCAL_INV: c_int = 6;
pub const IBV_WC_RECV: c_int = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: c_int = 129;

pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub const IBV_WC_EX_WITH_CVLAN: u64 = 1 << 8;
pub const IBV_WC_EX_WITH_FLOW_TAG: u64 = 1 << 9;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;
/// The fields of completions that `create_cq_ex` can be asked for and that each device has: all before the timestamp.
pub const IBV_WC_STANDARD_FLAGS: u64 = (1 << 7) - 1;

pub const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1 << 0;

pub const IBV_EVENT_CQ_ERR: c_int = 0;
pub const IBV_EVENT_QP_FATAL: c_int = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
pub const IBV_EVENT_COMM_EST: c_int = 4;
pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
pub const IBV_EVENT_PATH_MIG: c_int = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
pub const IBV_EVENT_PORT_ERR: c_int = 10;
pub const IBV_EVENT_LID_CHANGE: c_int = 11;
pub const IBV_EVENT_PKEY_CHANGE: c_int = 12;
pub const IBV_EVENT_SM_CHANGE: c_int = 13;
pub const IBV_EVENT_SRQ_ERR: c_int = 14;
pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub const IBV_EVENT_CLIENT_REREGISTER: c_int = 17;
pub const IBV_EVENT_GID_CHANGE: c_int = 18;
pub const IBV_EVENT_WQ_FATAL: c_int = 19;

pub const RDMA_PS_IPOIB: c_int = 0x0002;
pub const RDMA_PS_TCP: c_int = 0x0106;
pub const RDMA_PS_UDP: c_int = 0x0111;
pub const RDMA_PS_IB: c_int = 0x013f;

pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: c_int = 16;
pub const RDMA_CM_EVENT_ADDRINFO_ERROR: c_int = 17;
pub const RDMA_CM_EVENT_USER: c_int = 18;

pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_IB: c_int = 1;
pub const RDMA_OPTION_ID_TOS: c_int = 0;
pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
pub const RDMA_OPTION_IB_PATH: c_int = 1;
pub const IBV_PATH_FLAG_GMP: u32 = 1 << 0;
pub const IBV_PATH_FLAG_PRIMARY: u32 = 1 << 1;
pub const IBV_PATH_FLAG_BIDIRECTIONAL: u32 = (1 << 3) | (1 << 5);

pub const RAI_PASSIVE: c_int = 1;
pub const RAI_NUMERICHOST: c_int = 2;
pub const RAI_NOROUTE: c_int = 4;
pub const RAI_FAMILY: c_int = 8;
pub const RAI_SA: c_int = 0x10;
pub const RAI_DNS: c_int = 0x20;

pub const RDMA_MAX_RESP_RES: u8 = 0xff;
pub const RDMA_MAX_INIT_DEPTH: u8 = 0xff;
