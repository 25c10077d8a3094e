//! Options of ids, and the channel that an id reports to.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use bareverbs_node::cm::mad::sa::PathRecord;
use bareverbs_node::cm::rdma::IdOption;

use crate::abi::cma::{rdma_cm_id, rdma_event_channel};
use crate::abi::numbers::*;
use crate::process::failure::{Errno, Result, as_status, lock};
use crate::rdmacm::channel::{EventChannel, channel};
use crate::rdmacm::id::{IdObject, acknowledge, id};
use crate::rdmacm::path::{self, MOST_PATHS};
use crate::rdmacm::wildcard::migrate_elsewhere;

/// The longest value of an option, of which the kernel makes a copy (`KMALLOC_MAX_SIZE`).
const MOST_BYTES: usize = 4 << 20;

/// Sets an option of an id: `rdma_set_option`. `RDMA_OPTION_IB_PATH` takes the place of `rdma_resolve_route`, and
/// `RDMA_CM_EVENT_ROUTE_RESOLVED` follows.
///
/// # Safety
/// The id was created here, and so many bytes can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the caller promises the same here.
    as_status(|| unsafe { set_option(id, level, optname, optval, optlen) })
}

/// `rdma_set_option` for callers in Rust.
///
/// # Safety
/// As `rdma_set_option`.
pub(crate) unsafe fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_set_option`.
    let object = unsafe { self::id(id) }?;
    // The kernel copies the value before it looks at the option (`ucma_set_option`), whose length has 32 bits there.
    let optlen = optlen as u32 as usize;
    if optlen > MOST_BYTES {
        return Err(Errno::EINVAL);
    }
    if optval.is_null() && optlen > 0 {
        return Err(Errno(libc::EFAULT));
    }
    match (level, optname) {
        (RDMA_OPTION_ID, _) => {}
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
            if optlen == 0 || optlen > MOST_PATHS {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller promises the same as for `rdma_set_option`.
            let paths = unsafe { std::slice::from_raw_parts(optval.cast::<u8>(), optlen) };
            return set_path(object, path::usable(paths)?);
        }
        _ => return Err(Errno::ENOSYS),
    }
    let byte = || match optlen {
        // SAFETY: the caller promises the same as for `rdma_set_option`.
        1 => Ok(unsafe { optval.cast::<u8>().read() }),
        _ => Err(Errno::EINVAL),
    };
    let flag = || match optlen {
        // SAFETY: the caller promises the same as for `rdma_set_option`.
        4 => Ok(unsafe { optval.cast::<c_int>().read_unaligned() } != 0),
        _ => Err(Errno::EINVAL),
    };
    object.set_option(match optname {
        // The kernel takes it in every state, and looks at it when it resolves the route.
        RDMA_OPTION_ID_TOS if !object.takes_tos()? => return byte().map(drop),
        RDMA_OPTION_ID_TOS => IdOption::Tos(byte()?),
        RDMA_OPTION_ID_REUSEADDR => IdOption::ReuseAddr(flag()?),
        RDMA_OPTION_ID_AFONLY => IdOption::AfOnly(flag()?),
        RDMA_OPTION_ID_ACK_TIMEOUT => IdOption::AckTimeout(byte()?),
        _ => return Err(Errno::ENOSYS),
    })
}

/// Gives an id a path, for its resolved address only: it is not remembered for another device.
fn set_path(object: &IdObject, path: PathRecord) -> Result<()> {
    let (hca, cm) = {
        let inner = lock(&object.inner);
        (inner.hca, inner.cm)
    };
    if !hca.is_infiniband() {
        // As Linux: there is no InfiniBand device.
        return Err(Errno::EINVAL);
    }
    hca.manager()?.set_option(cm, IdOption::IbPath(path))?;
    // SAFETY: the id's channel is there for as long as the id.
    unsafe { channel(object.c.channel) }?.signal();
    Ok(())
}

/// Lets an id report to another channel, or without one to a channel of its own, so that its calls wait for their events.
///
/// # Safety
/// The id and the channel were created here.
pub(crate) unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<()> {
    // SAFETY: the caller promises that the id and the channel were created here.
    unsafe {
        let object = self::id(id)?;
        let before = (*id).channel;
        let (hca, cm, was_sync) = {
            let inner = lock(&object.inner);
            (inner.hca, inner.cm, inner.sync)
        };
        if to.is_null() && was_sync {
            return Err(Errno::EINVAL);
        }
        let own = to.is_null();
        let to: *mut EventChannel = if own {
            EventChannel::create()?
        } else {
            to.cast()
        };
        let moved = (|| {
            let on = channel(to.cast())?.on(hca)?;
            hca.manager()?.migrate_id(cm, Some(on))?;
            migrate_elsewhere(object, channel(to.cast())?)
        })();
        if let Err(errno) = moved {
            if own {
                EventChannel::destroy(to);
            }
            return Err(errno);
        }
        (*id).channel = to.cast();
        lock(&object.inner).sync = own;
        if was_sync {
            let event = (*id).event;
            if !event.is_null() {
                (*id).event = std::ptr::null_mut();
                acknowledge(event)?;
            }
            EventChannel::destroy(before.cast());
        }
        // Events that waited have moved along.
        channel(to.cast())?.signal();
        if !was_sync {
            channel(before)?.signal();
        }
        Ok(())
    }
}

/// Lets an id report to another channel: `rdma_migrate_id`. Events that wait move along.
///
/// # Safety
/// The id was created here; the channel is NULL or was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the caller promises that the id was created here; the channel is NULL or was created here.
    as_status(|| unsafe { migrate(id, channel) })
}
