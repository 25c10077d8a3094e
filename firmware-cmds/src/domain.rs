//! Protection, transport and XRC domains.

use crate::command::commands;

commands! {
    input AllocPdIn of AllocPd: "alloc_pd_in", 0x10, uid {}
    output AllocPdOut: "alloc_pd_out", 0x10 {
        bits pd, set_pd: u32 @ 0x08 [23:0];
    }

    input DeallocPdIn of DeallocPd: "dealloc_pd_in", 0x10, uid {
        bits pd, set_pd: u32 @ 0x08 [23:0];
    }

    input AllocTransportDomainIn of AllocTransportDomain: "alloc_transport_domain_in", 0x10, uid {}
    output AllocTransportDomainOut: "alloc_transport_domain_out", 0x10 {
        bits transport_domain, set_transport_domain: u32 @ 0x08 [23:0];
    }

    input DeallocTransportDomainIn of DeallocTransportDomain: "dealloc_transport_domain_in", 0x10, uid {
        bits transport_domain, set_transport_domain: u32 @ 0x08 [23:0];
    }

    input AllocXrcdIn of AllocXrcd: "alloc_xrcd_in", 0x10, uid {}
    output AllocXrcdOut: "alloc_xrcd_out", 0x10 {
        bits xrcd, set_xrcd: u32 @ 0x08 [23:0];
    }

    input DeallocXrcdIn of DeallocXrcd: "dealloc_xrcd_in", 0x10, uid {
        bits xrcd, set_xrcd: u32 @ 0x08 [23:0];
    }
}
