//! The structures of the kernel's verbs ABI, as `rdma/ib_user_verbs.h`, `rdma/rdma_user_ioctl_cmds.h` and `rdma/mlx5-abi.h`
//! have them. What stands in the program's memory is read and written in the machine's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Defines structures of the ABI: plain numbers without padding, which the derives check.
macro_rules! structures {
    ($($(#[$meta:meta])* struct $Name:ident { $($field:ident: $type:ty,)* })*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(crate) struct $Name { $(pub(crate) $field: $type,)* }
    )* };
}
pub(crate) use structures;

/// `RDMA_VERBS_IOCTL`.
pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

structures! {
    /// `struct ib_uverbs_ioctl_hdr`, behind which the attributes stand.
    struct Header {
        length: u16,
        object: u16,
        method: u16,
        num_attrs: u16,
        reserved1: u64,
        driver: u32,
        reserved2: u32,
    }

    /// `struct ib_uverbs_attr`.
    struct Attr {
        id: u16,
        len: u16,
        flags: u16,
        element: u16,
        data: u64,
    }
}

/// `UVERBS_ATTR_F_MANDATORY`.
pub(crate) const MANDATORY: u16 = 1;
/// `UVERBS_ATTR_F_VALID_OUTPUT`.
pub(crate) const VALID_OUTPUT: u16 = 2;
/// `UVERBS_ATTR_UHW_IN`: the provider's part of a request.
pub(crate) const UHW_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`: the provider's part of the answer.
pub(crate) const UHW_OUT: u16 = 0x1001;

/// `UVERBS_OBJECT_DEVICE`.
pub(crate) const OBJECT_DEVICE: u16 = 0;
/// `UVERBS_METHOD_INVOKE_WRITE` and its attributes.
pub(crate) const INVOKE_WRITE: u16 = 0;
pub(crate) const CORE_IN: u16 = 0;
pub(crate) const CORE_OUT: u16 = 1;
pub(crate) const WRITE_CMD: u16 = 2;
/// `UVERBS_METHOD_QUERY_CONTEXT`, its attributes, and the provider's.
pub(crate) const QUERY_CONTEXT: u16 = 4;
pub(crate) const NUM_COMP_VECTORS: u16 = 0;
pub(crate) const CORE_SUPPORT: u16 = 1;
pub(crate) const CONTEXT_OUT: u16 = 0x1000;
/// `UVERBS_OBJECT_ASYNC_EVENT`, its only method, and the attribute of that.
pub(crate) const OBJECT_ASYNC_EVENT: u16 = 16;
pub(crate) const ASYNC_EVENT_ALLOC: u16 = 0;
pub(crate) const ASYNC_EVENT_FD: u16 = 0;
/// `UVERBS_METHOD_QUERY_GID_TABLE` and its attributes.
pub(crate) const QUERY_GID_TABLE: u16 = 5;
pub(crate) const GID_TABLE_ENTRY_SIZE: u16 = 0;
pub(crate) const GID_TABLE_OUT: u16 = 2;
pub(crate) const GID_TABLE_LEN_OUT: u16 = 3;
/// `MLX5_IB_METHOD_QUERY_PORT` of the device, and its attributes.
pub(crate) const DV_QUERY_PORT: u16 = 0x1000;
pub(crate) const DV_QUERY_PORT_NUM: u16 = 0x1000;
pub(crate) const DV_QUERY_PORT_OUT: u16 = 0x1001;
/// `MLX5_IB_OBJECT_FLOW_MATCHER`, the provider's methods of `UVERBS_OBJECT_FLOW`, and their attributes.
pub(crate) mod matcher {
    pub(crate) const OBJECT: u16 = 0x1003;
    pub(crate) const RULE: u16 = 9;
    pub(crate) const CREATE: u16 = 0x1000;
    pub(crate) const DESTROY: u16 = 0x1001;
    pub(crate) const HANDLE: u16 = 0x1000;
    pub(crate) const MASK: u16 = 0x1001;
    pub(crate) const TYPE: u16 = 0x1002;
    pub(crate) const CRITERIA: u16 = 0x1003;
    pub(crate) const FLAGS: u16 = 0x1004;
    pub(crate) const TABLE: u16 = 0x1005;
    pub(crate) const VALUE: u16 = 0x1001;
    pub(crate) const TO_QP: u16 = 0x1002;
    pub(crate) const TO_DEVX: u16 = 0x1003;
    pub(crate) const BY: u16 = 0x1004;
    pub(crate) const ACTIONS: u16 = 0x1005;
    pub(crate) const TAG: u16 = 0x1006;
    pub(crate) const COUNTERS: u16 = 0x1007;
    pub(crate) const RULE_FLAGS: u16 = 0x1009;
    /// `MLX5_IB_ATTR_CREATE_FLOW_FLAGS_*`.
    pub(crate) const DEFAULT_MISS: u64 = 1 << 0;
    pub(crate) const DROP: u64 = 1 << 1;
}
/// `UVERBS_OBJECT_DM` and its methods, `UVERBS_METHOD_DM_MR_REG`, and their attributes.
pub(crate) mod dm {
    pub(crate) const OBJECT: u16 = 14;
    pub(crate) const ALLOC: u16 = 0;
    pub(crate) const ALLOC_HANDLE: u16 = 0;
    pub(crate) const ALLOC_LENGTH: u16 = 1;
    pub(crate) const ALLOC_ALIGNMENT: u16 = 2;
    /// The provider's.
    pub(crate) const ALLOC_START_OFFSET: u16 = 0x1000;
    pub(crate) const ALLOC_PAGE_INDEX: u16 = 0x1001;
    pub(crate) const ALLOC_TYPE: u16 = 0x1002;
    pub(crate) const FREE: u16 = 1;
    pub(crate) const FREE_HANDLE: u16 = 0;
    pub(crate) const REG: u16 = 0;
    pub(crate) const REG_HANDLE: u16 = 0;
    pub(crate) const REG_OFFSET: u16 = 1;
    pub(crate) const REG_LENGTH: u16 = 2;
    pub(crate) const REG_PD: u16 = 3;
    pub(crate) const REG_ACCESS: u16 = 4;
    pub(crate) const REG_DM: u16 = 5;
    pub(crate) const REG_LKEY: u16 = 6;
    pub(crate) const REG_RKEY: u16 = 7;
}
/// `UVERBS_OBJECT_MR`, `UVERBS_METHOD_ADVISE_MR` and its attributes.
pub(crate) const OBJECT_MR: u16 = 7;
pub(crate) const ADVISE_MR: u16 = 2;
pub(crate) const ADVISE_MR_PD: u16 = 0;
pub(crate) const ADVISE_MR_ADVICE: u16 = 1;
pub(crate) const ADVISE_MR_FLAGS: u16 = 2;
pub(crate) const ADVISE_MR_SGES: u16 = 3;
/// `UVERBS_METHOD_QUERY_GID_ENTRY` and its attributes.
pub(crate) const QUERY_GID_ENTRY: u16 = 6;
pub(crate) const GID_ENTRY_PORT: u16 = 0;
pub(crate) const GID_ENTRY_INDEX: u16 = 1;
pub(crate) const GID_ENTRY_OUT: u16 = 3;

/// Objects, methods and attributes of `mlx5_ib`'s own (`rdma/mlx5_user_ioctl_cmds.h`). The first ones of all kinds have the same
/// number.
pub(crate) mod devx {
    /// The first attribute, which is the handle in most methods, and the second.
    pub(crate) const FIRST: u16 = 0x1000;
    pub(crate) const SECOND: u16 = 0x1001;

    pub(crate) const DEVX: u16 = 0x1000;
    pub(crate) const OTHER: u16 = 0x1000;
    pub(crate) const OTHER_IN: u16 = 0x1000;
    pub(crate) const OTHER_OUT: u16 = 0x1001;
    pub(crate) const QUERY_UAR: u16 = 0x1001;
    pub(crate) const QUERY_EQN: u16 = 0x1002;
    pub(crate) const SUBSCRIBE: u16 = 0x1003;
    pub(crate) const EVENT_TYPES: u16 = 0x1002;
    pub(crate) const EVENT_COUNTER: u16 = 0x1003;
    pub(crate) const EVENT_COOKIE: u16 = 0x1004;
    /// Channels for answers of commands, and for events.
    pub(crate) const COMMAND_CHANNEL: u16 = 0x1004;
    pub(crate) const EVENT_CHANNEL: u16 = 0x1005;

    /// Methods of objects, memory and doorbell pages.
    pub(crate) const CREATE: u16 = 0x1000;
    pub(crate) const DESTROY: u16 = 0x1001;
    pub(crate) const MODIFY: u16 = 0x1002;
    pub(crate) const QUERY: u16 = 0x1003;

    pub(crate) const OBJ: u16 = 0x1001;
    pub(crate) const OBJ_IN: u16 = 0x1001;
    pub(crate) const OBJ_OUT: u16 = 0x1002;
    pub(crate) const ASYNC_QUERY: u16 = 0x1004;
    pub(crate) const ASYNC_CHANNEL: u16 = 0x1002;
    pub(crate) const ASYNC_WR_ID: u16 = 0x1003;
    pub(crate) const ASYNC_OUT_LEN: u16 = 0x1004;

    pub(crate) const UMEM: u16 = 0x1002;
    pub(crate) const UMEM_ADDR: u16 = 0x1001;
    pub(crate) const UMEM_LEN: u16 = 0x1002;
    pub(crate) const UMEM_ACCESS: u16 = 0x1003;
    pub(crate) const UMEM_ID: u16 = 0x1004;
    pub(crate) const UMEM_PAGE_SIZES: u16 = 0x1005;

    pub(crate) const UAR: u16 = 0x1008;
    pub(crate) const UAR_OFFSET: u16 = 0x1002;
    pub(crate) const UAR_LEN: u16 = 0x1003;
    pub(crate) const UAR_PAGE: u16 = 0x1004;
    /// A page as `mmap` takes it: `MLX5_IB_MMAP_WC_PAGE`, behind the pages that a context has from its beginning.
    pub(crate) const WC_PAGE: u64 = 2 << 8 | 0x80;
}

/// `enum ib_uverbs_write_cmds`, and the flag of those that are extended.
pub(crate) mod command {
    pub(crate) const EXTENDED: u32 = 0x8000_0000;
    pub(crate) const GET_CONTEXT: u32 = 0;
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const QUERY_PORT: u32 = 2;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const DEALLOC_PD: u32 = 4;
    pub(crate) const CREATE_AH: u32 = 5;
    pub(crate) const DESTROY_AH: u32 = 8;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const REREG_MR: u32 = 11;
    pub(crate) const DEREG_MR: u32 = 13;
    pub(crate) const ALLOC_MW: u32 = 14;
    pub(crate) const DEALLOC_MW: u32 = 16;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const CREATE_CQ: u32 = 18;
    pub(crate) const RESIZE_CQ: u32 = 19;
    pub(crate) const DESTROY_CQ: u32 = 20;
    pub(crate) const CREATE_QP: u32 = 24;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const DESTROY_QP: u32 = 27;
    pub(crate) const ATTACH_MCAST: u32 = 30;
    pub(crate) const DETACH_MCAST: u32 = 31;
    pub(crate) const CREATE_SRQ: u32 = 32;
    pub(crate) const MODIFY_SRQ: u32 = 33;
    pub(crate) const QUERY_SRQ: u32 = 34;
    pub(crate) const DESTROY_SRQ: u32 = 35;
    pub(crate) const OPEN_XRCD: u32 = 37;
    pub(crate) const CLOSE_XRCD: u32 = 38;
    pub(crate) const CREATE_XSRQ: u32 = 39;
    // Of the extended ones alone.
    pub(crate) const CREATE_FLOW: u32 = 50;
    pub(crate) const DESTROY_FLOW: u32 = 51;
    pub(crate) const CREATE_WQ: u32 = 52;
    pub(crate) const MODIFY_WQ: u32 = 53;
    pub(crate) const DESTROY_WQ: u32 = 54;
    pub(crate) const CREATE_RWQ_IND_TBL: u32 = 55;
    pub(crate) const DESTROY_RWQ_IND_TBL: u32 = 56;
}

structures! {
    struct GetContextOut { async_fd: u32, num_comp_vectors: u32, }

    /// `struct mlx5_ib_alloc_ucontext_req_v2`.
    struct Mlx5GetContextIn {
        total_num_bfregs: u32,
        num_low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }

    /// `struct ib_uverbs_sge`.
    struct Sge { addr: u64, length: u32, lkey: u32, }

    /// `struct mlx5_ib_alloc_ucontext_resp`.
    struct Mlx5GetContextOut {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }

    /// `struct ib_uverbs_query_device_resp`.
    struct QueryDeviceOut {
        fw_ver: u64,
        node_guid: [u8; 8],
        sys_image_guid: [u8; 8],
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }

    struct QueryPortIn { response: u64, port_num: u8, reserved: [u8; 7], }

    /// `struct ib_uverbs_query_port_resp`.
    struct QueryPortOut {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
    }

    /// `struct ib_uverbs_gid_entry`.
    struct GidEntryOut { gid: [u8; 16], index: u32, port: u32, kind: u32, netdev: u32, }

    /// The answer of commands that say no more than a handle; also a request of that kind.
    struct HandleOnly { handle: u32, }

    struct Mlx5AllocPdOut { pdn: u32, }

    /// `struct ib_uverbs_reg_mr`.
    struct RegMrIn {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    /// `struct ib_uverbs_rereg_mr`.
    struct ReregMrIn {
        response: u64,
        handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    struct ReregMrOut { lkey: u32, rkey: u32, }
    struct RegMrOut { handle: u32, lkey: u32, rkey: u32, }

    /// `struct ib_uverbs_create_cq`.
    struct CreateCqIn {
        response: u64,
        user_handle: u64,
        cqe: u32,
        comp_vector: u32,
        comp_channel: i32,
        reserved: u32,
    }
    /// `struct ib_uverbs_ex_create_cq`.
    struct ExCreateCqIn {
        user_handle: u64,
        cqe: u32,
        comp_vector: u32,
        comp_channel: i32,
        comp_mask: u32,
        flags: u32,
        reserved: u32,
    }
    struct CreateCqOut { handle: u32, cqe: u32, }
    struct ExCreateCqOut { base: CreateCqOut, comp_mask: u32, response_length: u32, }

    /// `struct mlx5_ib_create_cq`.
    struct Mlx5CreateCqIn {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }
    /// `struct ib_uverbs_resize_cq`.
    struct ResizeCqIn { response: u64, handle: u32, cqe: u32, }
    struct ResizeCqOut { cqe: u32, reserved: u32, }
    /// `struct mlx5_ib_resize_cq`.
    struct Mlx5ResizeCqIn { buf_addr: u64, cqe_size: u16, reserved0: u16, reserved1: u32, }
    struct Mlx5CreateCqOut { cqn: u32, reserved: u32, }

    /// `struct ib_uverbs_destroy_cq`, and those of other objects, also `struct ib_uverbs_query_srq`.
    struct DestroyIn { response: u64, handle: u32, reserved: u32, }
    struct DestroyCqOut { comp_events_reported: u32, async_events_reported: u32, }
    /// Answer of `DESTROY_QP` and `DESTROY_SRQ`.
    struct DestroyQpOut { events_reported: u32, }

    /// `struct ib_uverbs_ex_create_qp`, which `struct ib_uverbs_create_qp` is as well, from its second field to `reserved`.
    struct ExCreateQpIn {
        user_handle: u64,
        pd_handle: u32,
        send_cq_handle: u32,
        recv_cq_handle: u32,
        srq_handle: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        sq_sig_all: u8,
        qp_type: u8,
        is_srq: u8,
        reserved: u8,
        comp_mask: u32,
        create_flags: u32,
        rwq_ind_tbl_handle: u32,
        source_qpn: u32,
    }
    /// `struct ib_uverbs_create_qp`; what it does not have of the rest is zero.
    struct CreateQpIn { response: u64, rest: ExCreateQpIn, }
    /// `struct ib_uverbs_create_qp_resp`.
    struct CreateQpOut {
        handle: u32,
        qpn: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        reserved: u32,
    }
    struct ExCreateQpOut { base: CreateQpOut, comp_mask: u32, response_length: u32, }

    /// `struct mlx5_ib_create_qp`.
    struct Mlx5CreateQpIn {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        sq_buf_addr: u64,
        ece_options: u32,
        dci_streams: [u8; 2],
        reserved: u16,
    }
    /// `struct mlx5_ib_create_qp_resp`.
    struct Mlx5CreateQpOut {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved1: u32,
        tir_icm_addr: u64,
    }

    /// `struct ib_uverbs_qp_dest`.
    struct Destination {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// `struct ib_uverbs_modify_qp`.
    struct ModifyQpIn {
        dest: Destination,
        alt_dest: Destination,
        handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }
    struct ExModifyQpOut { comp_mask: u32, response_length: u32, }
    /// `struct mlx5_ib_modify_qp_resp`.
    struct Mlx5ModifyQpOut { response_length: u32, dctn: u32, ece_options: u32, reserved: u32, }

    /// `struct ib_uverbs_attach_mcast`.
    struct AttachMcastIn { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16, }

    struct QueryQpIn { response: u64, handle: u32, attr_mask: u32, }
    /// `struct ib_uverbs_query_qp_resp`.
    struct QueryQpOut {
        dest: Destination,
        alt_dest: Destination,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
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
        sq_sig_all: u8,
        reserved: [u8; 5],
    }

    /// `struct ib_uverbs_create_xsrq`, which `struct ib_uverbs_create_srq` is as well, without its type and what follows the limit.
    struct CreateXsrqIn {
        response: u64,
        user_handle: u64,
        srq_type: u32,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        max_num_tags: u32,
        xrcd_handle: u32,
        cq_handle: u32,
    }
    struct CreateSrqIn {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    struct CreateSrqOut { handle: u32, max_wr: u32, max_sge: u32, srqn: u32, }
    /// `struct mlx5_ib_create_srq`.
    struct Mlx5CreateSrqIn { buf_addr: u64, db_addr: u64, flags: u32, reserved0: u32, uidx: u32, reserved1: u32, }
    struct Mlx5CreateSrqOut { srqn: u32, reserved: u32, }
    struct ModifySrqIn { handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, }
    struct QuerySrqOut { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, }

    struct OpenXrcdIn { response: u64, fd: i32, oflags: u32, }

    /// `struct ib_uverbs_alloc_mw`.
    struct AllocMwIn { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3], }
    struct AllocMwOut { handle: u32, rkey: u32, }

    /// `struct ib_uverbs_async_event_desc`.
    struct AsyncEventOut { element: u64, event_type: u32, reserved: u32, }

    /// `struct ib_uverbs_create_ah`, whose attribute has the fields of another order than [`Destination`].
    struct CreateAhIn {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
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
    /// `struct mlx5_ib_create_ah_resp`.
    struct Mlx5CreateAhOut { response_length: u32, dmac: [u8; 6], reserved: [u8; 6], }
}
