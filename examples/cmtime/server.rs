//! The server accepts whoever comes, and lets go of whoever goes.

use std::net::SocketAddr;

use bareverbs::cm::rdma::{CmId, EventType, PortSpace};
use bareverbs::verbs::Platform;

use crate::node::Cm;
use crate::{Result, queues};

/// The context of the listener, and of requests that were not answered.
const FRESH: u64 = 0;
/// The context of what was accepted.
const ACCEPTED: u64 = 1;

/// Serves so many connections. How many were established.
pub(crate) fn serve<P: Platform>(
    cm: &mut Cm<'_, '_, P>,
    address: SocketAddr,
    connections: usize,
    listening: &mut dyn FnMut(),
) -> Result<usize> {
    let channel = cm.create_event_channel()?;
    let listener = cm.create_id(Some(channel), FRESH, PortSpace::Tcp)?;
    cm.bind_addr(listener, address)?;
    cm.listen(listener, connections as u32)?;
    listening();
    let (mut established, mut left) = (0, connections);
    while left > 0 {
        let event = cm.get_cm_event(channel)?;
        let id = event.id;
        match event.event {
            EventType::ConnectRequest => {
                if let Err(error) = accept(cm, id) {
                    eprintln!("cmtime: a connection is refused: {error}");
                    cm.destroy_id(id)?;
                    left -= 1;
                }
            }
            EventType::Established => established += 1,
            EventType::Disconnected => {
                cm.disconnect(id)?;
                cm.destroy_id(id)?;
                left -= 1;
            }
            EventType::TimewaitExit => {}
            EventType::DeviceRemoval => return Err("the card is gone".into()),
            failure => {
                eprintln!("cmtime: {failure}, {}", event.status);
                if event.context == ACCEPTED {
                    cm.destroy_id(id)?;
                    left -= 1;
                }
            }
        }
    }
    cm.destroy_id(listener)?;
    cm.destroy_event_channel(channel)?;
    Ok(established)
}

fn accept<P: Platform>(cm: &mut Cm<'_, '_, P>, id: CmId) -> Result<()> {
    cm.set_context(id, ACCEPTED)?;
    cm.create_qp(id, None, &mut queues())?;
    Ok(cm.accept(id, None)?)
}
