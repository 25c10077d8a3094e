//! Waiting for a port's link.

use std::time::Duration;

use bareverbs::verbs::{Device, Platform, PortAttr, PortState};

/// How often the port is asked, should its events be late.
const INTERVAL: Duration = Duration::from_millis(100);

/// Asks for the port until its link is up or so much time has passed, and says what it was at last. Asynchronous events that
/// come meanwhile are consumed: every command's completion ends [`Device::wait`], so that a loop of that and
/// [`Device::query_port`] would not sleep at all.
pub(crate) fn wait_for_link<P: Platform>(
    device: &Device<'_, P>,
    patience: Duration,
) -> crate::Result<PortAttr> {
    let deadline = device.platform().now() + patience;
    loop {
        let port = device.query_port()?;
        let now = device.platform().now();
        if port.state == PortState::Active || now >= deadline {
            return Ok(port);
        }
        device.get_async_event(deadline.min(now + INTERVAL))?;
    }
}
