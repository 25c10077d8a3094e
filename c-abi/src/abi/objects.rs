//! Objects and attributes of libibverbs.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::layout::c_structures;
use super::requests::*;

/// A function that is not offered: no program calls it, or `verbs.h` answers EOPNOTSUPP for it.
pub type unused = *mut c_void;

c_structures! {
    struct _ibv_device_ops {
        _dummy1: unused,
        _dummy2: unused,
    }

    struct ibv_context_ops {
        _compat_query_device: unused,
        _compat_query_port: unused,
        _compat_alloc_pd: unused,
        _compat_dealloc_pd: unused,
        _compat_reg_mr: unused,
        _compat_rereg_mr: unused,
        _compat_dereg_mr: unused,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: unused,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: unused,
        _compat_resize_cq: unused,
        _compat_destroy_cq: unused,
        _compat_create_srq: unused,
        _compat_modify_srq: unused,
        _compat_query_srq: unused,
        _compat_destroy_srq: unused,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: unused,
        _compat_query_qp: unused,
        _compat_modify_qp: unused,
        _compat_destroy_qp: unused,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: unused,
        _compat_destroy_ah: unused,
        _compat_attach_mcast: unused,
        _compat_detach_mcast: unused,
        _compat_async_event: unused,
    }

    struct ibv_device {
        _ops: _ibv_device_ops,
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        mw_type: c_int,
    }

    struct ibv_values_ex {
        comp_mask: u32,
        raw_clock: libc::timespec,
    }

    struct ibv_odp_caps {
        general_caps: u64,
        per_transport_caps: [u32; 3],
    }

    struct ibv_tso_caps {
        max_tso: u32,
        supported_qpts: u32,
    }

    struct ibv_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    struct ibv_packet_pacing_caps {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
    }

    struct ibv_tm_caps {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
    }

    struct ibv_cq_moderation_caps {
        max_cq_count: u16,
        max_cq_period: u16,
    }

    struct ibv_pci_atomic_caps {
        fetch_add: u16,
        swap: u16,
        compare_swap: u16,
    }

    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    struct ibv_alloc_dm_attr {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }

    struct ibv_dm {
        context: *mut ibv_context,
        memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
        memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
        comp_mask: u32,
        handle: u32,
    }

    struct ibv_port_attr {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
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
        port_cap_flags2: u16,
    }

    struct ibv_gid_entry {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    struct ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    struct ibv_mr_init_attr {
        length: usize,
        access: c_int,
        comp_mask: u64,
        iova: u64,
        addr: *mut c_void,
        fd: c_int,
        fd_offset: u64,
        dmah: *mut c_void,
        buf: *mut c_void,
    }

    struct ibv_comp_channel {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }

    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    struct ibv_tm_cap {
        max_num_tags: u32,
        max_ops: u32,
    }

    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: c_int,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    struct ibv_td {
        context: *mut ibv_context,
    }

    struct ibv_td_init_attr {
        comp_mask: u32,
    }

    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: *mut c_void,
        free: *mut c_void,
        pd_context: *mut c_void,
    }

    struct ibv_moderate_cq {
        cq_count: u16,
        cq_period: u16,
    }

    struct ibv_modify_cq_attr {
        attr_mask: u32,
        moderate: ibv_moderate_cq,
    }

    struct ibv_xrcd {
        context: *mut ibv_context,
    }

    struct ibv_xrcd_init_attr {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }

    struct ibv_rx_hash_conf {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut ibv_rwq_ind_table,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    struct ibv_qp_open_attr {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: c_int,
    }

    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    struct ibv_qp_attr {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
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
        rate_limit: u32,
    }

    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }
}

/// `union ibv_gid`: 16 bytes in network order, which C may read as two words of 8 bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// `struct ibv_async_event`, whose `element` is a pointer or a port number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_async_event {
    pub element: async_element,
    pub event_type: c_int,
}

/// The object of an asynchronous event.
#[repr(C)]
#[derive(Clone, Copy)]
pub union async_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub wq: *mut ibv_wq,
    pub port_num: c_int,
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ibv_device>() == 664);
    assert!(size_of::<ibv_context>() == 328);
    assert!(size_of::<ibv_device_attr>() == 232);
    assert!(size_of::<ibv_port_attr>() == 52);
    assert!(size_of::<ibv_mr>() == 48);
    assert!(size_of::<ibv_cq>() == 128);
    assert!(offset_of!(ibv_cq, comp_events_completed) == 120);
    assert!(size_of::<ibv_qp>() == 160);
    assert!(offset_of!(ibv_qp, state) == 56);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(offset_of!(ibv_qp_attr, ah_attr) == 56);
    assert!(offset_of!(ibv_qp_attr, pkey_index) == 120);
    assert!(size_of::<ibv_qp_init_attr>() == 64);
    assert!(size_of::<ibv_async_event>() == 16);
};
