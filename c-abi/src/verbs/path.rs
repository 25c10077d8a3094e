//! The way to a GID: C's address vectors have no destination MAC address, so that it is found here.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bareverbs_node::cm::rdma::{Resolution, Resolver};
use bareverbs_node::verbs::{AhAttr, Gid, GidEntry, LinkLayer, Mac, StaticRate};

use crate::abi::objects::{ibv_ah_attr, ibv_gid, ibv_global_route};
use crate::process::failure::{Errno, Result};
use crate::process::hca::Hca;

/// The time that a neighbour may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest interval between two checks for the answer.
const LOOK: Duration = Duration::from_millis(2);

/// A path as C describes it. `connection`: it is that of a reliable connection.
pub(crate) fn from_c(hca: &Hca, attr: &ibv_ah_attr, connection: bool) -> Result<AhAttr> {
    let global = attr.is_global != 0;
    let roce = hca.device.capabilities().link_layer() == LinkLayer::Ethernet;
    if roce && !global {
        // RoCE has no local identifiers.
        return Err(Errno::EINVAL);
    }
    let mut found = AhAttr {
        sl: attr.sl,
        static_rate: StaticRate::from_number(attr.static_rate).ok_or(Errno::EINVAL)?,
        dlid: attr.dlid,
        src_path_bits: attr.src_path_bits,
        port_num: attr.port_num,
        ..AhAttr::default()
    };
    if global {
        found.dgid = Gid(attr.grh.dgid.raw);
        found.sgid_index = attr.grh.sgid_index.into();
        found.hop_limit = attr.grh.hop_limit;
        found.traffic_class = attr.grh.traffic_class;
        // Programs give what does not fit; libibverbs passes 20 bits on.
        found.flow_label = attr.grh.flow_label & 0xf_ffff;
    }
    if roce {
        let source = hca.device.port_gid(found.sgid_index).ok_or(Errno::EINVAL)?;
        if source.gid == found.dgid {
            found.dmac = source.mac;
            found.force_loopback = connection && hca.device.capabilities().has_force_loopback();
        } else {
            found.dmac = mac(hca, &source, found.dgid)?;
        }
    }
    Ok(found)
}

/// The MAC address of the next hop on a path, and the VLAN of its source.
pub(crate) fn ethernet(hca: &Hca, attr: &ibv_ah_attr) -> Result<(Mac, Option<u16>)> {
    if hca.device.capabilities().link_layer() != LinkLayer::Ethernet
        || attr.port_num != crate::verbs::query::PORT
    {
        return Err(Errno::EINVAL);
    }
    // The addresses are looked at alone, also where the path is said to have none.
    let source = hca.device.port_gid(attr.grh.sgid_index.into());
    let source = source.ok_or(Errno::EINVAL)?;
    let destination = Gid(attr.grh.dgid.raw);
    if source.gid == destination {
        return Ok((source.mac, source.vlan));
    }
    // libibverbs has one errno for all neighbours that are not found.
    let mac = mac(hca, &source, destination).map_err(|_| Errno::EHOSTUNREACH)?;
    Ok((mac, source.vlan))
}

/// A path as C has it.
pub(crate) fn to_c(attr: &AhAttr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: attr.dgid.0 },
            flow_label: attr.flow_label,
            sgid_index: attr.sgid_index as u8,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
        },
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate.number(),
        is_global: u8::from(!attr.dgid.is_zero()),
        port_num: crate::verbs::query::PORT,
    }
}

/// The IP address that a GID of RoCE stands for.
pub(crate) fn ip(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid.0).to_canonical()
}

/// The Ethernet address of a multicast group (RFC 1112, RFC 2464); `None` for one host's address.
fn group_mac(address: IpAddr) -> Option<Mac> {
    if !address.is_multicast() {
        return None;
    }
    Some(match address {
        IpAddr::V4(address) => {
            let [_, b, c, d] = address.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
        }
    })
}

/// The MAC address of the next hop to a GID, by ARP or neighbour discovery.
fn mac(hca: &Hca, source: &GidEntry, to: Gid) -> Result<Mac> {
    let (from, to) = (ip(source.gid), ip(to));
    if let Some(mac) = group_mac(to) {
        return Ok(mac);
    }
    // The kernel's `rdma_resolve_ip` asks no neighbour of another family.
    if from.is_ipv4() != to.is_ipv4() {
        return Err(Errno::EINVAL);
    }
    // Another address of this port.
    let own = |(_, entry): (u16, GidEntry)| (ip(entry.gid) == to).then_some(entry.mac);
    if let Some(mac) = hca.device.gid_table().find_map(own) {
        return Ok(mac);
    }
    let began = hca.now();
    let deadline = began + PATIENCE;
    let mut now = began;
    loop {
        let resolution = {
            // The first request makes a deadline; to look again makes nothing.
            let mut manager = if now == began {
                hca.manager()?
            } else {
                hca.manager_quietly()?
            };
            let resolver = manager.resolver_mut().neighbours_mut();
            let resolution = resolver.resolve(now, from, to);
            resolver.poll(now)?;
            resolution
        };
        match resolution {
            Resolution::Found(neighbour) => return Ok(neighbour.mac),
            Resolution::Pending if now < deadline => hca.wait_turn(LOOK),
            Resolution::Pending => return Err(Errno::ETIMEDOUT),
            Resolution::NoAnswer => return Err(Errno::EHOSTUNREACH),
            Resolution::NoRoute => return Err(Errno::ENETUNREACH),
        }
        now = hca.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_addresses_of_their_own() {
        let group = |text: &str| group_mac(text.parse().unwrap());
        assert_eq!(group("224.129.2.3"), Some([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(group("ff02::1:2"), Some([0x33, 0x33, 0, 1, 0, 2]));
        assert_eq!(group("10.0.0.1"), None);
        assert_eq!(group("fd00::1"), None);
    }

    #[test]
    fn a_path_comes_back_from_c() {
        let attr = AhAttr {
            dgid: Gid::from_ipv4([10, 0, 0, 2].into()),
            sgid_index: 3,
            hop_limit: 64,
            traffic_class: 9,
            flow_label: 5,
            sl: 2,
            ..AhAttr::default()
        };
        let c = to_c(&attr);
        assert_eq!((c.is_global, c.port_num, c.sl), (1, 1, 2));
        assert_eq!(c.grh.dgid.raw, attr.dgid.0);
        assert_eq!((c.grh.sgid_index, c.grh.hop_limit), (3, 64));
        assert_eq!((c.grh.traffic_class, c.grh.flow_label), (9, 5));
    }
}
