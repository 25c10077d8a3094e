//! Structures of `ibv_create_flow`. A rule is a [`ibv_flow_attr`] with specifications behind it.

use std::ffi::c_int;

use super::layout::c_structures;
use super::objects::ibv_context;

c_structures! {
    struct ibv_flow {
        comp_mask: u32,
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_flow_attr {
        comp_mask: u32,
        flow_type: c_int,
        size: u16,
        priority: u16,
        num_of_specs: u8,
        port: u8,
        flags: u32,
    }

    struct ibv_flow_eth_filter {
        dst_mac: [u8; 6],
        src_mac: [u8; 6],
        ether_type: u16,
        vlan_tag: u16,
    }

    struct ibv_flow_spec_eth {
        spec_type: c_int,
        size: u16,
        val: ibv_flow_eth_filter,
        mask: ibv_flow_eth_filter,
    }

    struct ibv_flow_ipv4_filter {
        src_ip: u32,
        dst_ip: u32,
    }

    struct ibv_flow_spec_ipv4 {
        spec_type: c_int,
        size: u16,
        val: ibv_flow_ipv4_filter,
        mask: ibv_flow_ipv4_filter,
    }

    struct ibv_flow_ipv4_ext_filter {
        src_ip: u32,
        dst_ip: u32,
        proto: u8,
        tos: u8,
        ttl: u8,
        flags: u8,
    }

    struct ibv_flow_spec_ipv4_ext {
        spec_type: c_int,
        size: u16,
        val: ibv_flow_ipv4_ext_filter,
        mask: ibv_flow_ipv4_ext_filter,
    }

    struct ibv_flow_ipv6_filter {
        src_ip: [u8; 16],
        dst_ip: [u8; 16],
        flow_label: u32,
        next_hdr: u8,
        traffic_class: u8,
        hop_limit: u8,
    }

    struct ibv_flow_spec_ipv6 {
        spec_type: c_int,
        size: u16,
        val: ibv_flow_ipv6_filter,
        mask: ibv_flow_ipv6_filter,
    }

    struct ibv_flow_tcp_udp_filter {
        dst_port: u16,
        src_port: u16,
    }

    struct ibv_flow_spec_tcp_udp {
        spec_type: c_int,
        size: u16,
        val: ibv_flow_tcp_udp_filter,
        mask: ibv_flow_tcp_udp_filter,
    }

    struct ibv_flow_spec_action_tag {
        spec_type: c_int,
        size: u16,
        tag_id: u32,
    }

    struct ibv_flow_spec_action_drop {
        spec_type: c_int,
        size: u16,
    }

    struct ibv_flow_spec_counter_action {
        spec_type: c_int,
        size: u16,
        counters: *mut ibv_counters,
    }

    struct ibv_counters_init_attr {
        comp_mask: u32,
    }

    struct ibv_counters {
        context: *mut ibv_context,
    }

    struct ibv_counter_attach_attr {
        counter_desc: c_int,
        index: u32,
        comp_mask: u32,
    }
}
