//! Raising a port, and waiting for its link.

use std::time::Duration;

use bareverbs_cm::rdma::RdmaError;
use bareverbs_core::{Device, LinkLayer, LinkStatus, Platform, PortAttr, PortState};

/// The time between two queries of the port, should its events be late.
const INTERVAL: Duration = Duration::from_millis(100);

/// `true` if the port can be used: it is active, and on InfiniBand the subnet manager has said where it is itself.
pub(crate) fn is_usable(port: &PortAttr) -> bool {
    let managed = port.link_layer == LinkLayer::Ethernet || port.sm_lid != 0;
    port.state == PortState::Active && managed
}

/// Asks for the port until it can be used (an InfiniBand port when the subnet manager has said where it is) or `timeout` has passed, and returns what it was at last. A port that is down by
/// administration is raised first, if it is this function's own: another driver lowers it when it is unloaded. Asynchronous
/// events that arrive meanwhile are consumed: every command's completion ends [`Device::wait`], so that a loop of that and
/// [`Device::query_port`] would not sleep at all.
pub fn wait_for_link<P: Platform>(
    device: &Device<'_, P>,
    timeout: Duration,
) -> Result<PortAttr, RdmaError> {
    let deadline = device.platform().now() + timeout;
    if !timeout.is_zero() && device.query_link()? == LinkStatus::AdminDown {
        log::info!("the port is down by administration: raising it");
        device.set_link(true)?;
    }
    loop {
        let port = device.query_port()?;
        let now = device.platform().now();
        if is_usable(&port) || now >= deadline {
            return Ok(port);
        }
        device.get_async_event(deadline.min(now + INTERVAL))?;
    }
}
