//! Protection, transport and XRC domains.

use crate::command::EmptyOut;
use crate::command::command;
use crate::layout::layout;

layout! {
    /// Input of ALLOC_PD.
    pub struct AllocPdIn: "alloc_pd_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of ALLOC_PD.
    pub struct AllocPdOut: "alloc_pd_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits pd, set_pd: u32 @ 0x08 [23:0];
    }
}

command!(AllocPdIn => AllocPdOut, AllocPd);

layout! {
    /// Input of DEALLOC_PD.
    pub struct DeallocPdIn: "dealloc_pd_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits pd, set_pd: u32 @ 0x08 [23:0];
    }
}

command!(DeallocPdIn => EmptyOut, DeallocPd);

layout! {
    /// Input of ALLOC_TRANSPORT_DOMAIN.
    pub struct AllocTransportDomainIn: "alloc_transport_domain_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of ALLOC_TRANSPORT_DOMAIN.
    pub struct AllocTransportDomainOut: "alloc_transport_domain_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits transport_domain, set_transport_domain: u32 @ 0x08 [23:0];
    }
}

command!(AllocTransportDomainIn => AllocTransportDomainOut, AllocTransportDomain);

layout! {
    /// Input of DEALLOC_TRANSPORT_DOMAIN.
    pub struct DeallocTransportDomainIn: "dealloc_transport_domain_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits transport_domain, set_transport_domain: u32 @ 0x08 [23:0];
    }
}

command!(DeallocTransportDomainIn => EmptyOut, DeallocTransportDomain);

layout! {
    /// Input of ALLOC_XRCD.
    pub struct AllocXrcdIn: "alloc_xrcd_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
    }
}

layout! {
    /// Output of ALLOC_XRCD.
    pub struct AllocXrcdOut: "alloc_xrcd_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bits xrcd, set_xrcd: u32 @ 0x08 [23:0];
    }
}

command!(AllocXrcdIn => AllocXrcdOut, AllocXrcd);

layout! {
    /// Input of DEALLOC_XRCD.
    pub struct DeallocXrcdIn: "dealloc_xrcd_in", 0x10 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits xrcd, set_xrcd: u32 @ 0x08 [23:0];
    }
}

command!(DeallocXrcdIn => EmptyOut, DeallocXrcd);
