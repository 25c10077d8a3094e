//! The structures of the connection manager's ABI, as `rdma/rdma_user_cm.h` has them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::structures;

/// `RDMA_USER_CM_CMD_*`.
pub(crate) mod cm_command {
    pub(crate) const CREATE_ID: u32 = 0;
    pub(crate) const DESTROY_ID: u32 = 1;
    pub(crate) const BIND_IP: u32 = 2;
    pub(crate) const RESOLVE_IP: u32 = 3;
    pub(crate) const RESOLVE_ROUTE: u32 = 4;
    pub(crate) const QUERY_ROUTE: u32 = 5;
    pub(crate) const CONNECT: u32 = 6;
    pub(crate) const LISTEN: u32 = 7;
    pub(crate) const ACCEPT: u32 = 8;
    pub(crate) const REJECT: u32 = 9;
    pub(crate) const DISCONNECT: u32 = 10;
    pub(crate) const INIT_QP_ATTR: u32 = 11;
    pub(crate) const GET_EVENT: u32 = 12;
    pub(crate) const SET_OPTION: u32 = 14;
    pub(crate) const NOTIFY: u32 = 15;
    pub(crate) const JOIN_IP_MCAST: u32 = 16;
    pub(crate) const LEAVE_MCAST: u32 = 17;
    pub(crate) const MIGRATE_ID: u32 = 18;
    pub(crate) const JOIN_MCAST: u32 = 22;
}

/// Levels of options, and the options of each.
pub(crate) mod option {
    pub(crate) const ID: u32 = 0;
    pub(crate) const TOS: u32 = 0;
    pub(crate) const REUSEADDR: u32 = 1;
    pub(crate) const AFONLY: u32 = 2;
    pub(crate) const ACK_TIMEOUT: u32 = 3;
    pub(crate) const IB: u32 = 1;
    pub(crate) const IB_PATH: u32 = 1;
}

structures! {
    /// `struct rdma_ucm_cmd_hdr`, in front of each command.
    struct CmHeader { command: u32, len: u16, out: u16, }

    /// `struct sockaddr_in6`, in which an IPv4 address is a `struct sockaddr_in`.
    struct Sockaddr { family: u16, port: [u8; 2], flow_info: [u8; 4], address: [u8; 16], scope: u32, }

    struct CreateIdIn { uid: u64, response: u64, port_space: u16, qp_type: u8, reserved: [u8; 5], }
    struct CmIdOnly { id: u32, }
    /// `struct rdma_ucm_destroy_id`, which leaves a group as well.
    struct DestroyIdIn { response: u64, id: u32, reserved: u32, }
    struct BindIpIn { response: u64, address: Sockaddr, id: u32, }
    struct ResolveIpIn { source: Sockaddr, destination: Sockaddr, id: u32, timeout_ms: u32, }
    struct ResolveRouteIn { id: u32, timeout_ms: u32, }
    struct QueryRouteIn { response: u64, id: u32, option: u32, }

    /// `struct ib_user_path_rec`.
    struct PathOut {
        dgid: [u8; 16],
        sgid: [u8; 16],
        lids: [u8; 4],
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: [u8; 2],
        hop_limit: u8,
        traffic_class: u8,
        num_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        life_time_selector: u8,
        life_time: u8,
        preference: u8,
    }
    /// `struct rdma_ucm_query_route_resp`.
    struct QueryRouteOut {
        node_guid: [u8; 8],
        paths: [PathOut; 2],
        source: Sockaddr,
        destination: Sockaddr,
        num_paths: u32,
        port_num: u8,
        reserved: [u8; 3],
        ibdev_index: u32,
        reserved1: u32,
    }

    /// `struct rdma_ucm_conn_param`.
    struct Param {
        qp_num: u32,
        qkey: u32,
        private_data: [u8; 256],
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    }
    struct ConnectIn { param: Param, id: u32, reserved: u32, ece: [u32; 2], }
    struct AcceptIn { uid: u64, param: Param, id: u32, reserved: u32, ece: [u32; 2], }
    struct ListenIn { id: u32, backlog: u32, }
    struct RejectIn { id: u32, len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; 256], }
    struct InitQpAttrIn { response: u64, id: u32, qp_state: u32, }
    struct NotifyIn { id: u32, event: u32, }
    struct GetEventIn { response: u64, }

    /// `struct rdma_ucm_set_option`.
    struct SetOptionIn { value: u64, id: u32, level: u32, option: u32, len: u32, }
    /// `struct rdma_ucm_migrate_id`.
    struct MigrateIdIn { response: u64, id: u32, fd: u32, }
    /// `struct rdma_ucm_join_ip_mcast`.
    struct JoinIpMcastIn { response: u64, uid: u64, address: Sockaddr, id: u32, }
    /// `struct rdma_ucm_join_mcast`, as far as an IP address reaches.
    struct JoinMcastIn {
        response: u64,
        uid: u64,
        id: u32,
        address_size: u16,
        flags: u16,
        address: Sockaddr,
        rest: u32,
    }

    /// `struct rdma_ucm_event_resp`, whose parameters are a [`Param`] or a [`UdParam`].
    struct CmEventOut {
        uid: u64,
        id: u32,
        event: u32,
        status: u32,
        param: [u8; 304],
        reserved: u32,
        ece: [u32; 2],
    }

    /// `struct ib_uverbs_ah_attr`.
    struct AhAttrOut {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved1: u8,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved2: u8,
    }
    /// `struct rdma_ucm_ud_param`.
    struct UdParam {
        qp_num: u32,
        qkey: u32,
        ah_attr: AhAttrOut,
        private_data: [u8; 256],
        private_data_len: u8,
        reserved: [u8; 7],
    }
    /// `struct ib_uverbs_qp_attr`.
    struct QpAttrOut {
        mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: AhAttrOut,
        alt_ah_attr: AhAttrOut,
        cap: [u32; 5],
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    }
}
