//! Multicast groups: their slots, their addresses.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::qp::{DynQp, Ud};
use bareverbs_core::{Platform, RoceVersion};

use crate::ip::multicast_mac;
use crate::rdma::resolver::{Membership, Neighbour};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, PortSpace, UDP_QKEY};
use crate::rdma::verbs::owned::Objects;

/// The membership bit of a P_Key: full members receive from limited ones, and the other way round.
pub(crate) const FULL_MEMBER: u16 = 0x8000;

/// Storage for one group of one id. Hand a slice of them to [`RdmaCm::new`](crate::rdma::RdmaCm::new).
#[derive(Debug, Clone, Copy)]
pub struct GroupSlot {
    pub(crate) owner: Option<CmId>,
    pub(crate) group: IpAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) context: u64,
    pub(crate) path: AhAttr,
    /// The id's QP receives what is sent to the group.
    pub(crate) attached: bool,
    pub(crate) send_only: bool,
    pub(crate) qkey: u32,
    /// On InfiniBand: what is registered with subnet administration.
    pub(crate) membership: Option<Membership>,
    /// It has not answered yet; it has until then.
    pub(crate) joining: bool,
    pub(crate) until: Duration,
    /// The id is in the group, and `MulticastJoin` waits for a place among its events.
    #[cfg(feature = "attached-qps")]
    pub(crate) untold: bool,
}

impl GroupSlot {
    /// No group.
    pub const EMPTY: Self = Self {
        owner: None,
        group: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        vlan: None,
        context: 0,
        path: AhAttr::NONE,
        attached: false,
        send_only: false,
        qkey: UDP_QKEY,
        membership: None,
        joining: false,
        until: Duration::ZERO,
        #[cfg(feature = "attached-qps")]
        untold: false,
    };

    /// Takes a QP out of the group.
    pub(crate) fn detach<P: Platform>(&mut self, qp: Option<&mut DynQp<'_, P>>) {
        if core::mem::take(&mut self.attached)
            && let Some(qp) = qp.and_then(DynQp::as_qp_mut::<Ud>)
            && let Err(error) = qp.detach_mcast(self.path.dgid)
        {
            log::warn!("a QP could not be taken out of {}: {error}", self.group);
        }
    }
}

impl Default for GroupSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<P: Platform> Objects<'_, P> {
    /// Lets the QP, if there is one, receive what is sent to a group.
    pub(crate) fn attach(&mut self, slot: &GroupSlot) -> Result<bool, RdmaError> {
        match self.qp.as_mut().and_then(DynQp::as_qp_mut::<Ud>) {
            Some(qp) if !slot.send_only => {
                qp.attach_mcast(slot.path.dgid)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Attributes of a join (`struct rdma_cm_join_mc_attr_ex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinMulticast {
    /// The group.
    pub group: IpAddr,
    /// Only send to it (`RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`): the QP is not attached, and the group is not reported
    /// to switches.
    pub send_only: bool,
    /// Comes back with the event.
    pub context: u64,
}

/// The Ethernet address of a group, as a neighbour.
pub(crate) fn group_neighbour(version: RoceVersion, group: IpAddr) -> Neighbour {
    Neighbour::new(multicast_mac(roce_group(version, group)))
}

/// The address in the GID of an address on RoCE. Version 1 has IPv4 groups at ff0e::ffff:0:0/96, as Linux's RDMA CM does
/// it (`cma_iboe_set_mgid`).
// Not in each of its callers: an image that only has version 2 is no longer for it.
#[inline(never)]
pub(crate) fn roce_group(version: RoceVersion, address: IpAddr) -> IpAddr {
    match (version, address) {
        (RoceVersion::V1, IpAddr::V4(group)) if group.is_multicast() => {
            let mut octets = group.to_ipv6_mapped().octets();
            [octets[0], octets[1]] = [0xff, 0x0e];
            IpAddr::from(octets)
        }
        _ => address,
    }
}

/// Groups that Linux's RDMA CM takes for GIDs although they are given as IPv6 addresses, whatever their scope and flags:
/// ff1x:a01b.
const GID_LIKE: (u32, u32) = (0xfff0_ffff, 0xff10_a01b);

/// The GID of a group on InfiniBand. As Linux's RDMA CM does it: IPoIB's rule, but with a signature of its own for
/// `PortSpace::Udp`, so that its groups and those of the IP stack are apart. IPv6 groups are GIDs as they are, unless the id has
/// IP addresses (`over_ip`).
pub(crate) fn mgid(port_space: PortSpace, group: IpAddr, pkey: u16, over_ip: bool) -> [u8; 16] {
    let mut mgid = match group {
        IpAddr::V6(group) => {
            let octets = group.octets();
            let [a, b, c, d, ..] = octets;
            let (mask, gid) = GID_LIKE;
            if !over_ip || u32::from_be_bytes([a, b, c, d]) & mask == gid {
                return octets;
            }
            // The last 80 bits.
            let mut mgid = octets;
            mgid[2] = 0x60;
            mgid
        }
        IpAddr::V4(group) => {
            let [a, b, c, d] = group.octets();
            [0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, a & 0xf, b, c, d]
        }
    };
    let [high, low] = (pkey | FULL_MEMBER).to_be_bytes();
    [mgid[0], mgid[1], mgid[4], mgid[5]] = [0xff, 0x12, high, low];
    mgid[3] = if port_space == PortSpace::Udp {
        0x01
    } else {
        0x1b
    };
    mgid
}
