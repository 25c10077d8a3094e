//! The QPs of ids that have joined multicast groups.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::net::IpAddr;

use bareverbs_node::cm::rdma::CmEvent;
use bareverbs_node::verbs::Gid;

use crate::abi::objects::ibv_gid;
use crate::process::failure::{Result, lock};
use crate::rdmacm::id::IdObject;
use crate::verbs::create_qp::attach;
use crate::verbs::path;

/// Returns `true` if a GID is that of a group, also of an IPv4 group on InfiniBand: IPoIB's prefix, with the partition in the
/// middle, and the lower 28 bits of the address.
fn is_gid_of(group: IpAddr, gid: Gid) -> bool {
    if path::ip(gid) == group {
        return true;
    }
    let IpAddr::V4(group) = group else {
        return false;
    };
    let [a, b, c, d] = group.octets();
    gid.0[..3] == [0xff, 0x12, 0x40] && gid.0[6..] == [0, 0, 0, 0, 0, 0, a & 0xf, b, c, d]
}

/// A group was joined: attaches the QP to it.
///
/// # Safety
/// The id was created here.
pub(crate) unsafe fn joined(id: *mut IdObject, event: &CmEvent) -> Result<()> {
    // SAFETY: the caller promises that the id was created here.
    unsafe {
        let qp = (*id).c.qp;
        let (gid, lid) = (event.ud.ah_attr.dgid, event.ud.ah_attr.dlid);
        if qp.is_null() || gid.is_zero() {
            return Ok(());
        }
        {
            // One that only sends is not attached.
            let inner = lock(&(*id).inner);
            if !inner
                .groups
                .iter()
                .any(|(joined, _)| is_gid_of(*joined, gid))
            {
                return Ok(());
            }
        }
        attach(qp, &ibv_gid { raw: gid.0 }, lid, true)?;
        let mut inner = lock(&(*id).inner);
        for (joined, attached) in &mut inner.groups {
            if is_gid_of(*joined, gid) {
                *attached = (gid, lid);
            }
        }
        // As for `rdma_listen`: from here on messages to the group arrive.
        log::info!("rdma_join_multicast: {}", path::ip(gid));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_gids() {
        let gid = |text: &str| Gid::from_ipv6(text.parse().unwrap());
        let v4: IpAddr = "239.1.2.3".parse().unwrap();
        assert!(is_gid_of(v4, Gid::from(v4)));
        // As Linux makes them, of either port space.
        assert!(is_gid_of(v4, gid("ff12:401b:ffff::f01:203")));
        assert!(is_gid_of(v4, gid("ff12:4001:8001::f01:203")));
        assert!(!is_gid_of(v4, gid("ff12:401b:ffff::f01:204")));
        assert!(!is_gid_of(v4, gid("ff12:401b:ffff::1:f01:203")));
        let v6: IpAddr = "ff12:401b:ffff::1:2".parse().unwrap();
        assert!(is_gid_of(v6, gid("ff12:401b:ffff::1:2")));
        assert!(!is_gid_of(v6, gid("ff12:401b:ffff::1:3")));
    }
}
