//! The common part of rsockets on a device: protection domain, and the channel of the connection manager's events.

use std::sync::Mutex;

use bareverbs_node::cm::rdma::ChannelId;
use bareverbs_node::verbs::Pd;

use crate::process::failure::{Result, lock};
use crate::process::hca::{Hca, P};

/// A device with rsockets. It is made once, and kept until the process ends.
pub(super) struct Port {
    pub(super) hca: &'static Hca,
    pub(super) pd: Pd<'static, P>,
    pub(super) channel: ChannelId,
    /// Held while events are handled, so that those of one id are handled in their order.
    pub(super) turn: Mutex<()>,
}

static PORTS: Mutex<Vec<&'static Port>> = Mutex::new(Vec::new());

/// The device's, which is made if there is none.
pub(super) fn port(hca: &'static Hca) -> Result<&'static Port> {
    let mut ports = lock(&PORTS);
    if let Some(port) = ports.iter().find(|port| std::ptr::eq(port.hca, hca)) {
        return Ok(port);
    }
    let pd = hca.device.alloc_pd()?;
    let channel = hca.manager()?.create_event_channel()?;
    let port = Box::leak(Box::new(Port {
        hca,
        pd,
        channel,
        turn: Mutex::new(()),
    }));
    ports.push(port);
    Ok(port)
}

/// The device's, if it has any.
pub(super) fn existing(hca: &'static Hca) -> Option<&'static Port> {
    let ports = lock(&PORTS);
    let found = ports.iter().find(|port| std::ptr::eq(port.hca, hca));
    found.copied()
}
