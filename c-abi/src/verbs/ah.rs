//! Address handles.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use bareverbs_node::verbs::{AddressHandle, LinkLayer, Pd, StaticRate};

use crate::abi::numbers::{IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2};
use crate::abi::objects::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd,
};
use crate::abi::requests::ibv_wc;
use crate::process::failure::{Errno, Result, as_errno, as_pointer, as_status};
use crate::process::hca::{Hca, P};
use crate::verbs::context::context;
use crate::verbs::pd::pd;
use crate::verbs::{path, query};

/// `IBV_WC_GRH`.
const WC_GRH: u32 = 1;
/// Version of an IPv4 header without options.
const IPV4: u8 = 0x45;

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    c: ibv_ah,
    pub(crate) handle: AddressHandle,
    /// The domain, which stays as long: on Ethernet, where Linux has a handle of its own for the address.
    _domain: Option<Arc<Pd<'static, P>>>,
}

/// Makes an address handle.
///
/// # Safety
/// The domain was allocated here.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    // SAFETY: the caller promises that the domain was allocated here.
    let object = unsafe { self::pd(pd) }?;
    if attr.port_num != query::PORT {
        return Err(Errno::EINVAL);
    }
    let roce = object.hca.device.capabilities().link_layer() == LinkLayer::Ethernet;
    let rate = match StaticRate::from_number(attr.static_rate) {
        Some(rate) => rate,
        None if roce => return Err(Errno::EINVAL),
        // As rdma-core has it, which asks the kernel on Ethernet only: what is no rate is no limit either.
        None => StaticRate::default(),
    };
    let attr = ibv_ah_attr {
        static_rate: rate.number(),
        ..*attr
    };
    let path = path::from_c(object.hca, &attr, false)?;
    let handle = object.hca.device.create_ah(&path)?;
    let c = ibv_ah {
        context: object.c.context,
        pd,
        handle: 0,
    };
    let made = AhObject {
        c,
        handle,
        _domain: roce.then(|| Arc::clone(&object.pd)),
    };
    Ok(Box::into_raw(Box::new(made)).cast())
}

/// Makes an address handle: `ibv_create_ah`. The next hop's MAC address is asked for first, which may take a while.
///
/// # Safety
/// The domain was allocated here, and `attr` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller promises that the domain was allocated here, and `attr` is a structure of the headers.
    as_pointer(|| unsafe { create(pd, attr.as_ref().ok_or(Errno::EINVAL)?) })
}

/// The Ethernet address of the next hop on a path, and its VLAN, 0xffff if there is none: `ibv_resolve_eth_l2_from_gid`. The
/// address is asked for, which may take a while.
///
/// # Safety
/// The context is open; `attr` is a structure of the headers; the address, and the VLAN if it is not NULL, can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    const NO_VLAN: u16 = 0xffff;
    as_status(|| {
        // SAFETY: the caller promises that the context is open; `attr` is a structure of the headers; the address, and the
        // VLAN if it is not NULL, can be written.
        unsafe {
            let hca = self::context(context)?.hca;
            let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
            let (mac, vlan) = path::ethernet(hca, attr)?;
            eth_mac.cast::<[u8; 6]>().write(mac);
            if let Some(vid) = vid.as_mut() {
                *vid = vlan.unwrap_or(NO_VLAN);
            }
        }
        Ok(())
    })
}

/// Destroys an address handle: `ibv_destroy_ah`.
///
/// # Safety
/// It was made here, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    as_errno(|| {
        if ah.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it was made by `create`.
        drop(unsafe { Box::from_raw(ah.cast::<AhObject>()) });
        Ok(())
    })
}

/// The way back to where a datagram came from: `ibv_init_ah_from_wc`.
///
/// # Safety
/// The context is open; `wc` is a completion of a receive, of which `grh` points to the first 40 bytes; `attr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the context is open; `wc` is a completion of a receive, of which `grh` points to
        // the first 40 bytes; `attr` can be written.
        unsafe {
            let hca = self::context(context)?.hca;
            let header = grh.cast::<[u8; 40]>().as_ref();
            let wc = wc.as_ref().ok_or(Errno::EINVAL)?;
            attr.write(way_back(hca, port_num, wc, header)?);
        }
        Ok(())
    })
}

/// Makes an address handle for the way back: `ibv_create_ah_from_wc`.
///
/// # Safety
/// The domain was allocated here; `wc` and `grh` as for `ibv_init_ah_from_wc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain was allocated here; `wc` and `grh` as for `ibv_init_ah_from_wc`.
        unsafe {
            let hca = self::pd(pd)?.hca;
            let header = grh.cast::<[u8; 40]>().as_ref();
            let wc = wc.as_ref().ok_or(Errno::EINVAL)?;
            create(pd, &way_back(hca, port_num, wc, header)?)
        }
    })
}

/// The path back to the sender of a datagram, from the network header in front of it (RoCE v1 and InfiniBand: a GRH; RoCE v2: an
/// IPv6 header, or 20 bytes of nothing and an IPv4 header).
fn way_back(
    hca: &Hca,
    port_num: u8,
    wc: &ibv_wc,
    header: Option<&[u8; 40]>,
) -> Result<ibv_ah_attr> {
    let mut attr = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: [0; 16] },
            // libibverbs takes it from where a GRH has it (`set_ah_attr_generic_fields`), also in front of an IPv4 header.
            flow_label: header.map_or(0, |header| {
                u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]])
            }),
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 0,
        port_num,
    };
    if wc.wc_flags & WC_GRH == 0 {
        // On Ethernet the sender is not known, which is found where the handle is made.
        return Ok(attr);
    }
    let header = header.ok_or(Errno::EINVAL)?;
    if port_num != query::PORT {
        return Err(Errno::EINVAL);
    }
    let v1 = !is_routable(header);
    let Headers {
        source,
        destination,
        class,
        hops,
    } = headers(header);
    let roce = hca.device.capabilities().link_layer() == LinkLayer::Ethernet;
    let version = if v1 {
        IBV_GID_TYPE_ROCE_V1
    } else {
        IBV_GID_TYPE_ROCE_V2
    };
    attr.is_global = 1;
    attr.grh.dgid.raw = source;
    attr.grh.hop_limit = hops;
    attr.grh.traffic_class = class;
    let length = hca.device.query_port()?.gid_table_len as u32;
    for index in 0..length.min(256) {
        if let Ok(Some((gid, found))) = query::gid_entry(hca, index)
            && gid.raw == destination
            && (!roce || found == version)
        {
            attr.grh.sgid_index = index as u8;
            return Ok(attr);
        }
    }
    Err(Errno::EINVAL)
}

/// Returns `true` if it is an IP header with UDP, and not a GRH.
fn is_routable(header: &[u8; 40]) -> bool {
    const UDP: u8 = 17;
    header[20] == IPV4 || header[0] >> 4 == 6 && header[6] == UDP
}

/// The fields of a network header that the way back is made of.
#[derive(Debug, PartialEq, Eq)]
struct Headers {
    source: [u8; 16],
    destination: [u8; 16],
    class: u8,
    hops: u8,
}

/// Source and destination as GIDs, the traffic class and the hop limit.
fn headers(header: &[u8; 40]) -> Headers {
    let mapped = |at: usize| {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&header[at..at + 4]);
        gid
    };
    let whole = |at: usize| {
        let mut gid = [0; 16];
        gid.copy_from_slice(&header[at..at + 16]);
        gid
    };
    // An IPv6 header and a GRH have the version in front, which an IPv4 header has after 20 bytes.
    if header[20] == IPV4 && header[0] >> 4 != 6 {
        return Headers {
            source: mapped(32),
            destination: mapped(36),
            class: header[21],
            hops: header[28],
        };
    }
    Headers {
        source: whole(8),
        destination: whole(24),
        class: (header[0] & 0xf) << 4 | header[1] >> 4,
        hops: header[7],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_in_the_network_header() {
        let mut header = [0; 40];
        header[20] = IPV4;
        header[21] = 0x20;
        header[28] = 63;
        header[32..36].copy_from_slice(&[10, 0, 0, 2]);
        header[36..40].copy_from_slice(&[10, 0, 0, 1]);
        let found = headers(&header);
        assert_eq!(found.source[10..], [0xff, 0xff, 10, 0, 0, 2]);
        assert_eq!(found.destination[10..], [0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((found.class, found.hops), (0x20, 63));
        assert!(is_routable(&header));

        let mut header = [0; 40];
        (header[0], header[1], header[6], header[7]) = (0x61, 0x20, 17, 62);
        header[8..24].fill(2);
        // Looks like an IPv4 header, and is part of an address.
        header[20] = IPV4;
        header[24..40].fill(1);
        let found = headers(&header);
        assert_eq!((found.source[0], found.destination), (2, [1; 16]));
        assert_eq!((found.class, found.hops), (0x12, 62));
        assert!(is_routable(&header));
    }
}
