//! The server accepts every client, and frees its connection when it disconnects.

use bareverbs::cm::rdma::{ChannelId, CmId, EventType, PortSpace, SockAddr};
use bareverbs::verbs::Platform;
use bareverbs::verbs::cq::Cq;

use crate::in_step::{InStep, Stage};
use crate::queues::{completions, queues};
use bareverbs_examples::Result;
use bareverbs_node::Cm;

/// The context of the listener, and of requests that were not answered.
const FRESH: u64 = 0;
/// The context of what was accepted.
const ACCEPTED: u64 = 1;

/// Serves so many connections in each round. How many were established.
pub(crate) fn serve<P: Platform>(
    cm: &mut Cm<'_, '_, P>,
    address: SockAddr,
    rounds: &[usize],
    mut in_step: Option<InStep>,
    listening: &mut dyn FnMut(),
) -> Result<usize> {
    let channel = cm.create_event_channel()?;
    let cq = completions(cm)?;
    let listener = cm.create_id(Some(channel), FRESH, PortSpace::Tcp)?;
    cm.bind_addr(listener, address)?;
    let most = rounds.iter().max().copied().unwrap_or_default();
    cm.listen(listener, most as u32)?;
    listening();
    let mut established = 0;
    for &connections in rounds {
        established += round(cm, channel, &cq, connections, &mut in_step)?;
    }
    if let Some(in_step) = in_step {
        in_step.close(cm)?;
    }
    cm.destroy_id(listener)?;
    cm.destroy_event_channel(channel)?;
    Ok(established)
}

fn round<'d, P: Platform>(
    cm: &mut Cm<'_, 'd, P>,
    channel: ChannelId,
    cq: &Cq<'d, P>,
    connections: usize,
    in_step: &mut Option<InStep>,
) -> Result<usize> {
    let mut reached = |cm: &mut Cm<'_, '_, P>, stage| match in_step {
        Some(in_step) => in_step.answer(cm, stage),
        None => Ok(()),
    };
    reached(cm, Stage::Begin)?;
    let (mut established, mut failed, mut left) = (0, 0, connections);
    while left > 0 {
        let event = cm.get_cm_event(channel)?;
        let id = event.id;
        match event.event {
            EventType::ConnectRequest => {
                if let Err(error) = accept(cm, id, cq) {
                    eprintln!("cmtime: a connection is refused: {error}");
                    cm.destroy_id(id)?;
                    (failed, left) = (failed + 1, left - 1);
                }
            }
            EventType::Established => {
                established += 1;
                if established + failed == connections {
                    reached(cm, Stage::Connected)?;
                }
            }
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
                    (failed, left) = (failed + 1, left - 1);
                }
            }
        }
    }
    reached(cm, Stage::Disconnected)?;
    Ok(established)
}

fn accept<'d, P: Platform>(cm: &mut Cm<'_, 'd, P>, id: CmId, cq: &Cq<'d, P>) -> Result<()> {
    cm.set_context(id, ACCEPTED)?;
    cm.create_qp(id, None, &mut queues(cq))?;
    Ok(cm.accept(id, None)?)
}
