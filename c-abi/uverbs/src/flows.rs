//! Rules that say which frames come to raw packet QPs: `CREATE_FLOW`, whose specifications are parsed as `kern_spec_to_ib_spec` does
//! (drivers/infiniband/core/uverbs_cmd.c).

use std::cell::RefCell;
use std::rc::Rc;

use bareverbs_node::verbs::{
    EthFilter, EthernetError, FlowAttr, FlowFlags, FlowSlot, FlowSpec, FlowType, Ipv4Filter,
    Ipv6Filter, PortFilter, Tirn,
};
use libc::c_int;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{CORE_IN, CORE_OUT};
use crate::attrs::{Args, Result, refused};
use crate::flow::{Flow, Rules, unruled};
use crate::objects::Object;
use crate::raw_abi::*;
use crate::server::Server;

/// Priorities: sixteen, as with `mlx5_ib`, and two for the default types.
const PRIORITIES: u8 = 16 + 2;
/// Room for rules at each of them, of which half can be used whatever they look at.
const AT_EACH: usize = 1024;
/// `IB_FLOW_SPEC_SUPPORT_LAYERS`.
const MOST_SPECS: u8 = 10;

/// `enum ib_flow_spec_type`.
mod kind {
    pub(super) const ETH: u32 = 0x20;
    pub(super) const IPV4: u32 = 0x30;
    pub(super) const IPV6: u32 = 0x31;
    pub(super) const ESP: u32 = 0x34;
    pub(super) const TCP: u32 = 0x40;
    pub(super) const UDP: u32 = 0x41;
    pub(super) const VXLAN: u32 = 0x50;
    pub(super) const GRE: u32 = 0x51;
    pub(super) const MPLS: u32 = 0x60;
    /// A bit beside the others: the header is inside a tunnel.
    pub(super) const INNER: u32 = 0x100;
    pub(super) const ACTION_TAG: u32 = 0x1000;
    pub(super) const ACTION_DROP: u32 = 0x1001;
    pub(super) const ACTION_HANDLE: u32 = 0x1002;
    pub(super) const ACTION_COUNT: u32 = 0x1003;
}

/// Value and mask of a specification: a half each. A shorter one has zeros behind it, and what the mask of a longer one has there
/// has to be zero (`spec_filter_size`).
fn both<T: FromBytes + IntoBytes>(bytes: &[u8]) -> Result<[T; 2]> {
    let half = bytes.len() / 2;
    let (value, mask) = bytes.split_at(half);
    let excess = mask[..half].get(size_of::<T>()..).unwrap_or(&[]);
    if half == 0 || !half.is_multiple_of(4) || excess.iter().any(|byte| *byte != 0) {
        return Err(libc::EINVAL);
    }
    Ok([value, mask].map(|given| {
        let mut filter = T::new_zeroed();
        let bytes = filter.as_mut_bytes();
        let len = half.min(bytes.len());
        bytes[..len].copy_from_slice(&given[..len]);
        filter
    }))
}

/// A specification without its header.
fn spec(kind: u32, bytes: &[u8]) -> Result<FlowSpec> {
    Ok(match kind {
        kind::ETH => {
            let [value, mask] = both(bytes)?.map(|it: EthIn| EthFilter {
                dst_mac: it.dst_mac,
                src_mac: it.src_mac,
                ether_type: u16::from_be_bytes(it.ether_type),
                vlan_tag: u16::from_be_bytes(it.vlan_tag),
            });
            FlowSpec::Eth { value, mask }
        }
        kind::IPV4 => {
            let [value, mask] = both(bytes)?.map(|it: Ipv4In| Ipv4Filter {
                src_ip: it.src_ip,
                dst_ip: it.dst_ip,
                proto: it.proto,
                tos: it.tos,
                ttl: it.ttl,
                flags: it.flags,
            });
            FlowSpec::Ipv4 { value, mask }
        }
        kind::IPV6 => {
            let [value, mask] = both(bytes)?.map(|it: Ipv6In| Ipv6Filter {
                src_ip: it.src_ip,
                dst_ip: it.dst_ip,
                flow_label: u32::from_be_bytes(it.flow_label),
                next_hdr: it.next_hdr,
                traffic_class: it.traffic_class,
                hop_limit: it.hop_limit,
            });
            FlowSpec::Ipv6 { value, mask }
        }
        kind::TCP | kind::UDP => {
            let [value, mask] = both(bytes)?.map(|it: PortsIn| PortFilter {
                dst_port: u16::from_be_bytes(it.dst_port),
                src_port: u16::from_be_bytes(it.src_port),
            });
            match kind {
                kind::TCP => FlowSpec::Tcp { value, mask },
                _ => FlowSpec::Udp { value, mask },
            }
        }
        kind::ACTION_TAG => {
            let TagIn { tag, .. } = TagIn::read_from_bytes(bytes).map_err(|_| libc::EINVAL)?;
            FlowSpec::ActionTag(tag)
        }
        kind::ACTION_DROP if bytes.is_empty() => FlowSpec::ActionDrop,
        kind::ACTION_HANDLE | kind::ACTION_COUNT => return Err(libc::EOPNOTSUPP),
        _ => match kind & !kind::INNER {
            kind::ETH | kind::IPV4 | kind::IPV6 | kind::ESP | kind::TCP | kind::UDP => {
                return Err(libc::EOPNOTSUPP);
            }
            kind::VXLAN | kind::GRE | kind::MPLS => return Err(libc::EOPNOTSUPP),
            _ => return Err(libc::EINVAL),
        },
    })
}

/// As many specifications as there are said to be, which take all bytes.
fn specs(mut bytes: &[u8], count: u8) -> Result<Vec<FlowSpec>> {
    let mut specs = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (header, _) = SpecHeader::ref_from_prefix(bytes).map_err(|_| libc::EINVAL)?;
        let (this, rest) = bytes
            .split_at_checked(header.size.into())
            .ok_or(libc::EINVAL)?;
        let body = this.get(size_of::<SpecHeader>()..).ok_or(libc::EINVAL)?;
        if header.reserved != 0 {
            return Err(libc::EINVAL);
        }
        specs.push(spec(header.kind, body)?);
        bytes = rest;
    }
    match bytes {
        [] => Ok(specs),
        _ => Err(libc::EINVAL),
    }
}

impl<'d> Server<'_, '_, 'd> {
    /// The rules of the port: in front of the connection manager's queue, which gets the frames that no rule takes.
    pub(crate) fn rules(&mut self) -> Result<Rules<'d>> {
        if let Some(rules) = &self.rules {
            return rules.clone();
        }
        let failed = |error| {
            log::warn!("{error}");
            match error {
                EthernetError::Command(error) => refused(error),
                EthernetError::Memory(_) => libc::ENOMEM,
                _ => libc::EOPNOTSUPP,
            }
        };
        let domain = self.device.alloc_ethernet_domain().map_err(failed)?;
        let each = AT_EACH.min(domain.max_flow_slots() / usize::from(PRIORITIES));
        // They stay as long as the device, which stays as long as the process: a table that is refused is not tried again.
        let room = vec![FlowSlot::new(); usize::from(PRIORITIES) * each].leak();
        let table = domain.create_flow_table(room, PRIORITIES).map_err(failed);
        let table = table.map(|table| Rc::new(RefCell::new(table)));
        self.rules.insert(table).clone()
    }

    /// `CREATE_FLOW`.
    pub(crate) fn create_flow(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let bytes = args.bytes(CORE_IN)?;
        let (asked, rest) = CreateFlowIn::ref_from_prefix(&bytes).map_err(|_| libc::EINVAL)?;
        if asked.comp_mask != 0
            || asked.num_of_specs > MOST_SPECS
            || asked.reserved != [0; 2]
            || asked.port != 1
        {
            return Err(libc::EINVAL);
        }
        let kind = match asked.kind {
            0 => FlowType::Normal,
            1 | 2 if asked.flags & FlowFlags::DONT_TRAP.bits() != 0 => return Err(libc::EINVAL),
            // Those of the default types would be behind the connection manager's queue, where there is no table.
            1 | 2 => return Err(libc::EOPNOTSUPP),
            3 => FlowType::Sniffer,
            _ => return Err(libc::EINVAL),
        };
        let bytes = rest.get(..asked.size.into()).ok_or(libc::EINVAL)?;
        let specs = specs(bytes, asked.num_of_specs)?;
        let attr = FlowAttr {
            kind,
            priority: asked.priority,
            specs: &specs,
            flags: FlowFlags::from_bits(asked.flags).ok_or(libc::EINVAL)?,
        };
        let handle = asked.qp_handle;
        let [target, ..] = self.context(fd)?.raw(handle)?.numbers();
        let target = Tirn::from_low_bits(target.ok_or(libc::EINVAL)?);
        let rules = self.rules()?;
        let rule = rules.borrow_mut().create_flow(target, &attr);
        let flow = Flow {
            rule: Some(rule.map_err(unruled)?),
            rules,
            qp: handle,
            matcher: None,
        };
        let handle = self.context(fd)?.add(Object::Flow(Box::new(flow)));
        let comp_mask = 0;
        args.output(CORE_OUT, &CreateFlowOut { comp_mask, handle });
        Ok(())
    }

    /// `DESTROY_FLOW`.
    pub(crate) fn destroy_flow(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let ExDestroyIn { comp_mask, handle } = args.input(CORE_IN)?;
        if comp_mask != 0 {
            return Err(libc::EINVAL);
        }
        let is = |it: &Object<'_>| matches!(it, Object::Flow(_));
        self.context(fd)?.remove(handle, is).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u32, size: usize, body: &[u8]) -> Vec<u8> {
        let header = SpecHeader {
            kind,
            size: size as u16,
            reserved: 0,
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn specifications_are_as_long_as_they_say() {
        let ports = |port: u8| PortsIn {
            dst_port: [0, port],
            src_port: [0; 2],
        };
        let body = [ports(7), ports(0xff)];
        let udp = bytes(kind::UDP, 16, body.as_bytes());
        let drop = bytes(kind::ACTION_DROP, 8, &[]);
        let all = [&udp[..], &drop].concat();
        let filter = |dst_port| PortFilter {
            dst_port,
            src_port: 0,
        };
        let expected = FlowSpec::Udp {
            value: filter(7),
            mask: filter(0xff),
        };
        assert_eq!(specs(&all, 2), Ok(vec![expected, FlowSpec::ActionDrop]));
        // One more, one less, and sizes that end elsewhere.
        assert_eq!(specs(&all, 3), Err(libc::EINVAL));
        assert_eq!(specs(&all, 1), Err(libc::EINVAL));
        for size in [0, 7, 15, 17, 25] {
            let wrong = bytes(kind::UDP, size, body.as_bytes());
            assert_eq!(
                specs(&[&wrong[..], &drop].concat(), 2),
                Err(libc::EINVAL),
                "{size}"
            );
        }
        for (kind, errno) in [
            (kind::VXLAN, libc::EOPNOTSUPP),
            (kind::INNER | kind::UDP, libc::EOPNOTSUPP),
            (kind::ACTION_COUNT, libc::EOPNOTSUPP),
            (0x22, libc::EINVAL),
            (kind::INNER | kind::ACTION_DROP, libc::EINVAL),
        ] {
            let unknown = bytes(kind, 16, body.as_bytes());
            assert_eq!(specs(&unknown, 1), Err(errno), "{kind:#x}");
        }
        let mut reserved = udp;
        reserved[6] = 1;
        assert_eq!(specs(&reserved, 1), Err(libc::EINVAL));
    }

    #[test]
    fn filters_are_shorter_or_longer() {
        // `struct ibv_kern_ipv4_filter` has the addresses alone.
        let addresses = [
            10, 0, 0, 1, 10, 0, 0, 2, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0,
        ];
        let filter = |src_ip, dst_ip| Ipv4Filter {
            src_ip,
            dst_ip,
            ..Ipv4Filter::default()
        };
        let expected = FlowSpec::Ipv4 {
            value: filter([10, 0, 0, 1], [10, 0, 0, 2]),
            mask: filter([0xff, 0xff, 0, 0], [0xff, 0xff, 0xff, 0]),
        };
        assert_eq!(spec(kind::IPV4, &addresses), Ok(expected));
        // Eight bytes of value and mask, of which the last four are not known.
        let mut ports = [0; 16];
        (ports[1], ports[7], ports[9]) = (7, 1, 0xff);
        let filter = |dst_port| PortFilter {
            dst_port,
            src_port: 0,
        };
        let expected = FlowSpec::Udp {
            value: filter(7),
            mask: filter(0xff),
        };
        assert_eq!(spec(kind::UDP, &ports), Ok(expected));
        ports[15] = 1;
        assert_eq!(spec(kind::UDP, &ports), Err(libc::EINVAL));
        for len in [0, 4, 12] {
            assert_eq!(
                spec(kind::IPV4, &addresses[..len]),
                Err(libc::EINVAL),
                "{len}"
            );
        }
    }
}
