//! Raw packet QPs, and the rules that say which frames come to them: `ibv_create_flow`.
//!
//! What they need is made when the first of them is: a transport domain for each context, as with Linux's driver, and a table
//! of rules for the port, in front of the connection manager's queue, which gets the frames that no rule takes. Of the frames
//! that a QP sends to a group or to the port's own address, the QPs of other contexts get those that their rules name, and the
//! QPs of its own context none.

// UNSAFETY: reads structures of C, hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use bareverbs_node::verbs::{
    EthFilter, FlowAttr, FlowFlags, FlowRule, FlowSpec, FlowType, Ipv4Filter, Ipv6Filter,
    PortFilter,
};

use crate::abi::flow::*;
use crate::abi::numbers::*;
use crate::abi::objects::ibv_qp;
use crate::ethernet::counters::{CountersObject, counters};
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::verbs::context::context;
use crate::verbs::qp::{QpObject, qp};
use crate::verbs::query::PORT;

/// A rule.
#[repr(C)]
struct FlowObject {
    c: ibv_flow,
    qp: *const QpObject,
    /// The counters attached to it, or NULL.
    counters: *const CountersObject,
    /// There until it is taken away.
    rule: Option<FlowRule>,
}

/// A structure of C behind a pointer, if it has the size that it says.
///
/// # Safety
/// `size` bytes can be read there.
unsafe fn read<T: Copy>(at: *const u8, size: u16) -> Result<T> {
    if usize::from(size) != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise; the structures have numbers only.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

fn eth(from: &ibv_flow_eth_filter) -> EthFilter {
    EthFilter {
        dst_mac: from.dst_mac,
        src_mac: from.src_mac,
        ether_type: u16::from_be(from.ether_type),
        vlan_tag: u16::from_be(from.vlan_tag),
    }
}

/// Addresses lie in memory as the network has them.
fn ipv4(from: &ibv_flow_ipv4_filter) -> Ipv4Filter {
    Ipv4Filter {
        src_ip: from.src_ip.to_ne_bytes(),
        dst_ip: from.dst_ip.to_ne_bytes(),
        ..Ipv4Filter::default()
    }
}

fn ipv4_ext(from: &ibv_flow_ipv4_ext_filter) -> Ipv4Filter {
    Ipv4Filter {
        src_ip: from.src_ip.to_ne_bytes(),
        dst_ip: from.dst_ip.to_ne_bytes(),
        proto: from.proto,
        tos: from.tos,
        ttl: from.ttl,
        flags: from.flags,
    }
}

fn ipv6(from: &ibv_flow_ipv6_filter) -> Ipv6Filter {
    Ipv6Filter {
        src_ip: from.src_ip,
        dst_ip: from.dst_ip,
        flow_label: u32::from_be(from.flow_label),
        next_hdr: from.next_hdr,
        traffic_class: from.traffic_class,
        hop_limit: from.hop_limit,
    }
}

fn ports(from: &ibv_flow_tcp_udp_filter) -> PortFilter {
    PortFilter {
        dst_port: u16::from_be(from.dst_port),
        src_port: u16::from_be(from.src_port),
    }
}

/// A specification, and how many bytes it has. Counters go to `counted`.
///
/// # Safety
/// There is one of the headers, whose counters were created here.
unsafe fn spec(at: *const u8, counted: &mut *const CountersObject) -> Result<(FlowSpec, usize)> {
    // SAFETY: the caller's promise: type and size are the first fields of each, as of this one.
    let head = unsafe { at.cast::<ibv_flow_spec_action_drop>().read_unaligned() };
    let size = head.size;
    // SAFETY: the caller's promise: it has the size that it says.
    let spec = unsafe {
        match head.spec_type {
            IBV_FLOW_SPEC_ETH => {
                let c: ibv_flow_spec_eth = read(at, size)?;
                let (value, mask) = (eth(&c.val), eth(&c.mask));
                FlowSpec::Eth { value, mask }
            }
            IBV_FLOW_SPEC_IPV4 => {
                let c: ibv_flow_spec_ipv4 = read(at, size)?;
                let (value, mask) = (ipv4(&c.val), ipv4(&c.mask));
                FlowSpec::Ipv4 { value, mask }
            }
            IBV_FLOW_SPEC_IPV4_EXT => {
                let c: ibv_flow_spec_ipv4_ext = read(at, size)?;
                let (value, mask) = (ipv4_ext(&c.val), ipv4_ext(&c.mask));
                FlowSpec::Ipv4 { value, mask }
            }
            IBV_FLOW_SPEC_IPV6 => {
                let c: ibv_flow_spec_ipv6 = read(at, size)?;
                let (value, mask) = (ipv6(&c.val), ipv6(&c.mask));
                FlowSpec::Ipv6 { value, mask }
            }
            IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_UDP => {
                let c: ibv_flow_spec_tcp_udp = read(at, size)?;
                let (value, mask) = (ports(&c.val), ports(&c.mask));
                match head.spec_type {
                    IBV_FLOW_SPEC_TCP => FlowSpec::Tcp { value, mask },
                    _ => FlowSpec::Udp { value, mask },
                }
            }
            IBV_FLOW_SPEC_ACTION_TAG => {
                FlowSpec::ActionTag(read::<ibv_flow_spec_action_tag>(at, size)?.tag_id)
            }
            IBV_FLOW_SPEC_ACTION_DROP => {
                read::<ibv_flow_spec_action_drop>(at, size)?;
                FlowSpec::ActionDrop
            }
            IBV_FLOW_SPEC_ACTION_COUNT => {
                let c: ibv_flow_spec_counter_action = read(at, size)?;
                let object = counters(c.counters)?;
                // One counter has it all.
                if !counted.is_null() {
                    return Err(Errno::EINVAL);
                }
                *counted = object;
                FlowSpec::ActionCount(object.id())
            }
            // Headers inside tunnels, tunnels, and other actions.
            _ => return Err(Errno::EOPNOTSUPP),
        }
    };
    Ok((spec, size.into()))
}

/// `ibv_create_flow`, from the table of functions.
///
/// # Safety
/// The QP was created here; the rule has as many specifications of the headers behind it as it says.
pub(crate) unsafe extern "C" fn create_flow(
    of: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    as_pointer(|| {
        // SAFETY: the caller promises that the QP was created here; the rule has as many specifications of the headers behind
        // it as it says.
        let (object, c) = unsafe { (qp(of)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let kind = match c.flow_type {
            IBV_FLOW_ATTR_NORMAL => FlowType::Normal,
            IBV_FLOW_ATTR_ALL_DEFAULT => FlowType::AllDefault,
            IBV_FLOW_ATTR_MC_DEFAULT => FlowType::McDefault,
            IBV_FLOW_ATTR_SNIFFER => FlowType::Sniffer,
            _ => return Err(Errno::EINVAL),
        };
        if c.comp_mask != 0 || c.port != PORT {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the specifications begin behind the rule, and the caller promises that they are there.
        let mut at = unsafe { attr.add(1) }.cast_const().cast::<u8>();
        let mut counted = ptr::null();
        let mut specs = Vec::with_capacity(c.num_of_specs.into());
        for _ in 0..c.num_of_specs {
            // SAFETY: the same; each is as long as it says.
            let (spec, size) = unsafe { self::spec(at, &mut counted) }?;
            specs.push(spec);
            at = at.wrapping_byte_add(size);
        }
        let attr = FlowAttr {
            kind,
            priority: c.priority,
            specs: &specs,
            flags: FlowFlags::from_bits(c.flags).ok_or(Errno::EINVAL)?,
        };
        log::debug!("ibv_create_flow: {attr:?}");
        // SAFETY: a context is there longer than its QPs.
        let context = unsafe { context(object.ex.qp_base.context) }?;
        let domain = context.frames.domain(object.hca.device)?;
        // SAFETY: the caller promises that the QP was created here; the rule has as many specifications of the headers behind
        // it as it says.
        let counters = unsafe { counted.as_ref() };
        counters.map_or(Ok(()), CountersObject::bind)?;
        let added = object.with(|qp| {
            let (target, rules) = qp.steered()?;
            let rule = object.hca.raw.add(domain, target, &attr)?;
            *rules += 1;
            Ok(rule)
        });
        if added.is_err() {
            counters.inspect(|counters| counters.unbind());
        }
        let rule = Some(added?);
        log::info!(
            "ibv_create_flow: {:?} for {}",
            attr.kind,
            object.ex.qp_base.qp_num
        );
        let flow = FlowObject {
            c: ibv_flow {
                comp_mask: 0,
                context: object.ex.qp_base.context,
                handle: 0,
            },
            qp: object,
            counters: counted,
            rule,
        };
        Ok(Box::into_raw(Box::new(flow)).cast())
    })
}

/// `ibv_destroy_flow`, from the table of functions.
///
/// # Safety
/// It was created here, its QP and its counters are there, and it is not used again after a success.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    as_errno(|| {
        let flow = flow.cast::<FlowObject>();
        // SAFETY: the caller's promise: it is a `FlowObject`, and neither its QP nor its counters can be destroyed before.
        let (object, counters, rule) = unsafe {
            let flow = flow.as_mut().ok_or(Errno::EINVAL)?;
            (&*flow.qp, flow.counters.as_ref(), &mut flow.rule)
        };
        object.with(|qp| {
            let (_, rules) = qp.steered()?;
            let gone = object.hca.raw.remove(rule.take().ok_or(Errno::EINVAL)?);
            if let Err((kept, errno)) = gone {
                *rule = Some(kept);
                return Err(errno);
            }
            *rules -= 1;
            Ok(())
        })?;
        counters.inspect(|counters| counters.unbind());
        // SAFETY: the caller's promise: it was made by `create_flow`.
        drop(unsafe { Box::from_raw(flow) });
        Ok(())
    })
}
