//! The structures of the ABI about Ethernet frames: receive queues, tables of these, QPs that hash, and rules.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{QueryDeviceOut, structures};

structures! {
    /// `struct ib_uverbs_ex_create_wq`.
    struct CreateWqIn {
        comp_mask: u32,
        wq_type: u32,
        user_handle: u64,
        pd_handle: u32,
        cq_handle: u32,
        max_wr: u32,
        max_sge: u32,
        create_flags: u32,
        reserved: u32,
    }
    struct CreateWqOut {
        comp_mask: u32,
        response_length: u32,
        handle: u32,
        max_wr: u32,
        max_sge: u32,
        wqn: u32,
    }
    /// `struct mlx5_ib_create_wq`.
    struct Mlx5CreateWqIn {
        buf_addr: u64,
        db_addr: u64,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        user_index: u32,
        flags: u32,
        comp_mask: u32,
        single_stride_log_num_of_bytes: u32,
        single_wqe_log_num_of_strides: u32,
        two_byte_shift_en: u32,
    }
    /// Provider's answer of `CREATE_WQ` and `CREATE_RWQ_IND_TBL`.
    struct Mlx5LengthOut { response_length: u32, reserved: u32, }
    /// `struct ib_uverbs_ex_modify_wq`.
    struct ModifyWqIn {
        attr_mask: u32,
        handle: u32,
        wq_state: u32,
        curr_wq_state: u32,
        flags: u32,
        flags_mask: u32,
    }
    /// `struct ib_uverbs_ex_destroy_wq`, and those of tables and rules.
    struct ExDestroyIn { comp_mask: u32, handle: u32, }
    struct DestroyWqOut { comp_mask: u32, response_length: u32, events_reported: u32, reserved: u32, }

    /// `struct ib_uverbs_ex_create_rwq_ind_table`, behind which the handles stand.
    struct CreateTableIn { comp_mask: u32, log_ind_tbl_size: u32, }
    struct CreateTableOut { comp_mask: u32, response_length: u32, handle: u32, number: u32, }

    /// `struct mlx5_ib_create_qp_rss`.
    struct Mlx5CreateQpRssIn {
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
        rx_key_len: u8,
        reserved: [u8; 6],
        rx_hash_key: [u8; 128],
        comp_mask: u32,
        flags: u32,
    }

    /// `struct ib_uverbs_create_flow`, behind which the specifications stand.
    struct CreateFlowIn {
        comp_mask: u32,
        qp_handle: u32,
        kind: u32,
        size: u16,
        priority: u16,
        num_of_specs: u8,
        reserved: [u8; 2],
        port: u8,
        flags: u32,
    }
    struct CreateFlowOut { comp_mask: u32, handle: u32, }
    /// `struct ib_uverbs_flow_spec_hdr`.
    struct SpecHeader { kind: u32, size: u16, reserved: u16, }
    /// `struct ib_uverbs_flow_eth_filter`. What has more than a byte is in the network's order, here and below.
    struct EthIn { dst_mac: [u8; 6], src_mac: [u8; 6], ether_type: [u8; 2], vlan_tag: [u8; 2], }
    struct Ipv4In { src_ip: [u8; 4], dst_ip: [u8; 4], proto: u8, tos: u8, ttl: u8, flags: u8, }
    struct Ipv6In {
        src_ip: [u8; 16],
        dst_ip: [u8; 16],
        flow_label: [u8; 4],
        next_hdr: u8,
        traffic_class: u8,
        hop_limit: u8,
    }
    struct PortsIn { dst_port: [u8; 2], src_port: [u8; 2], }
    /// `struct ib_uverbs_flow_spec_action_tag`, behind its header.
    struct TagIn { tag: u32, reserved: u32, }

    /// `struct ib_uverbs_ex_query_device_resp`.
    struct ExQueryDeviceOut {
        base: QueryDeviceOut,
        comp_mask: u32,
        response_length: u32,
        odp_general: u64,
        odp_rc: u32,
        odp_uc: u32,
        odp_ud: u32,
        odp_reserved: u32,
        timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        rss_supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        reserved: u32,
        max_wq_type_rq: u32,
        raw_packet_caps: u32,
        tag_matching: [u32; 6],
        cq_moderation: [u32; 2],
        max_dm_size: u64,
        odp_xrc: u32,
        reserved1: u32,
    }
    /// The beginning of `struct mlx5_ib_query_device_resp`.
    struct Mlx5QueryDeviceOut {
        comp_mask: u32,
        response_length: u32,
        max_tso: u32,
        tso_supported_qpts: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
        reserved: [u8; 7],
        cqe_comp_max_num: u32,
        cqe_comp_formats: u32,
        packet_pacing: [u32; 4],
        multi_packet_wqes: u32,
        flags: u32,
        software_parsing: [u32; 2],
        striding_rq: [u32; 6],
        tunnel_offloads: u32,
        dci_streams: [u8; 2],
        reserved1: u16,
    }
}
