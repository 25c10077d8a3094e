//! Listeners on all addresses: one id of the connection manager on each device.

use std::ptr;

use bareverbs_node::cm::rdma::{CmId, SockAddr};

use crate::process::device::devices;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::Hca;
use crate::rdmacm::channel::EventChannel;
use crate::rdmacm::id::{IdObject, id_type, local_addr, port_space};
use crate::rdmacm::sockaddr;

/// Lets an id that listens on all addresses listen on the other devices as well, of which those that are not up are brought up.
/// Requests that come there are the listener's.
pub(crate) fn listen_elsewhere(
    listener: &IdObject,
    channel: &EventChannel,
    backlog: u32,
) -> Result<()> {
    let (first, cm) = {
        let inner = lock(&listener.inner);
        (inner.hca, inner.cm)
    };
    let Some(address) = local_addr(&*first.manager()?, cm)? else {
        return Ok(());
    };
    if !sockaddr::is_any(&address) {
        return Ok(());
    }
    for device in devices()? {
        let hca = device.hca()?;
        if ptr::eq(hca, first) {
            continue;
        }
        if let Err(errno) = listen_on(listener, channel, hca, address, backlog) {
            forget(listener);
            // It stays bound, and may listen again.
            first.manager()?.stop_listen(cm)?;
            return Err(errno);
        }
    }
    Ok(())
}

fn listen_on(
    listener: &IdObject,
    channel: &EventChannel,
    hca: &'static Hca,
    address: SockAddr,
    backlog: u32,
) -> Result<()> {
    let fits = match address {
        SockAddr::Ip(_) => hca.has_ip(),
        SockAddr::Ib(_) => hca.is_infiniband(),
    };
    if !fits {
        // Its port has addresses of the other family.
        return Ok(());
    }
    let on = match channel.on(hca) {
        Ok(on) => on,
        // The device is gone.
        Err(Errno::ENODEV) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let space = port_space(listener.c.ps)?;
    let id_type = id_type(space, Some(listener.c.qp_type))?;
    let mut inner = lock(&listener.inner);
    let mut manager = hca.manager()?;
    let context = ptr::from_ref(listener) as u64;
    let cm = manager.create_id_of(Some(on), context, space, id_type)?;
    // From here on it goes with the listener.
    inner.elsewhere.push((hca, cm));
    for option in &inner.options {
        manager.set_option(cm, *option)?;
    }
    manager.bind_addr(cm, address)?;
    Ok(manager.listen(cm, backlog)?)
}

/// Lets the ids on the other devices report to another channel.
pub(crate) fn migrate_elsewhere(listener: &IdObject, to: &EventChannel) -> Result<()> {
    for (hca, cm) in elsewhere(listener) {
        let on = to.on(hca)?;
        hca.manager()?.migrate_id(cm, Some(on))?;
    }
    Ok(())
}

/// Destroys the ids on the other devices.
pub(crate) fn forget(listener: &IdObject) {
    let ids = std::mem::take(&mut lock(&listener.inner).elsewhere);
    for (hca, cm) in ids {
        if let Ok(mut manager) = hca.manager()
            && let Err(error) = manager.destroy_id(cm)
        {
            log::debug!("{error}");
        }
    }
}

fn elsewhere(listener: &IdObject) -> Vec<(&'static Hca, CmId)> {
    lock(&listener.inner).elsewhere.clone()
}
