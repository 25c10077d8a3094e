//! Multicast groups of ids for datagrams.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use bareverbs_node::cm::rdma::JoinMulticast;
use bareverbs_node::verbs::Gid;

use crate::abi::cma::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use crate::abi::objects::ibv_gid;
use crate::process::failure::{Errno, Result, as_status, guarded, lock};
use crate::rdmacm::event::completed;
use crate::rdmacm::id::{id, manager_of};
use crate::rdmacm::sockaddr::{self, from_c};
use crate::verbs::create_qp::attach;

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS`, `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`.
const ADDRESS: u32 = 1 << 0;
const JOIN_FLAGS: u32 = 1 << 1;
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`, `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;

/// Joins a group for an id.
///
/// # Safety
/// The id was created here.
unsafe fn join(id: *mut rdma_cm_id, join: &JoinMulticast) -> Result<bool> {
    // SAFETY: the caller promises that the id was created here.
    unsafe {
        let object = self::id(id)?;
        let (hca, cm) = manager_of(id)?;
        if !join.send_only {
            lock(&object.inner)
                .groups
                .push((join.group, (Gid::ZERO, 0)));
        }
        let asked = hca.manager()?.join_multicast_ex(cm, join);
        if let Err(error) = asked {
            lock(&object.inner)
                .groups
                .retain(|(group, _)| *group != join.group);
            return Err(error.into());
        }
        Ok(true)
    }
}

/// Joins a multicast group: `rdma_join_multicast`.
///
/// # Safety
/// The id was created here, and `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id was created here, and `addr` is an address.
        unsafe {
            let group = sockaddr::ip(&from_c(addr)?.ok_or(Errno::EINVAL)?);
            let wanted = JoinMulticast {
                group,
                send_only: false,
                context: context as u64,
            };
            join(id, &wanted)
        }
    });
    // SAFETY: the caller promises that the id was created here, and `addr` is an address.
    unsafe { completed(id, begun) }
}

/// Joins a multicast group as a sender only, or as a member: `rdma_join_multicast_ex`.
///
/// # Safety
/// The id was created here, and `attr` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id was created here, and `attr` is a structure of the headers.
        unsafe {
            let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
            let needed = ADDRESS | JOIN_FLAGS;
            if attr.comp_mask > needed {
                return Err(Errno::EOPNOTSUPP);
            }
            if attr.comp_mask != needed || attr.join_flags > SEND_ONLY {
                return Err(Errno::EINVAL);
            }
            let group = sockaddr::ip(&from_c(attr.addr)?.ok_or(Errno::EINVAL)?);
            let wanted = JoinMulticast {
                group,
                send_only: attr.join_flags != FULL_MEMBER,
                context: context as u64,
            };
            join(id, &wanted)
        }
    });
    // SAFETY: the caller promises that the id was created here, and `attr` is a structure of the headers.
    unsafe { completed(id, begun) }
}

/// Leaves a multicast group: `rdma_leave_multicast`.
///
/// # Safety
/// The id was created here, and `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here, and `addr` is an address.
        unsafe {
            let object = self::id(id)?;
            let group = sockaddr::ip(&from_c(addr)?.ok_or(Errno::EINVAL)?);
            let (hca, cm) = manager_of(id)?;
            let attached = {
                let mut inner = lock(&object.inner);
                let place = inner.groups.iter().position(|(joined, _)| *joined == group);
                place.map(|place| inner.groups.swap_remove(place).1)
            };
            if let Some((gid, lid)) = attached.filter(|(gid, _)| !gid.is_zero())
                && !(*id).qp.is_null()
            {
                // A QP that has left the group already is what was asked for.
                let _: Result<()> = attach((*id).qp, &ibv_gid { raw: gid.0 }, lid, false);
            }
            Ok(hca.manager()?.leave_multicast(cm, group)?)
        }
    })
}
