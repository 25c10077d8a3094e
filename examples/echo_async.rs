//! A server of events: one thread and one completion queue for a hundred clients at once. On two device models, or on two
//! cards that `BAREVERBS_DEVICE` names.

use bareverbs_examples::echo_clients;
use bareverbs_node::cm::rdma::{EventType, PortSpace, QpInit, SendFlags};
use bareverbs_node::{Cm, Pair, Result, verbs::CqInit};

const SERVER: [u8; 4] = [10, 0, 0, 1];

fn main() -> Result<()> {
    let pair = Pair::from_env(SERVER, [10, 0, 0, 2])?.with_connections(100);
    pair.run(server, |cm| echo_clients::run(cm, (SERVER, 7), 100, 16))?;
    Ok(())
}

fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<()> {
    let channel = cm.create_event_channel()?;
    let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp)?;
    cm.bind_addr(listener, (SERVER, 7))?;
    cm.listen(listener, 100)?;
    ready();
    let mut cq = cm.device().create_cq(CqInit::new(100))?;
    let (mut peers, mut gone) = (Vec::new(), 0);
    while gone < 100 {
        cm.wait(cm.now())?;
        while let Some(event) = cm.try_get_cm_event(channel)? {
            if event.event == EventType::ConnectRequest {
                cm.create_qp(event.id, None, &mut QpInit::with_recv_cq(&cq))?;
                let buffer = cm.reg_msgs(event.id, 16)?;
                cm.post_recv(event.id, peers.len() as u64, &buffer, 0, 16)?;
                cm.accept(event.id, None)?;
                peers.push((event.id, buffer));
            } else if event.event == EventType::Disconnected {
                cm.disconnect(event.id)?;
                cm.destroy_ep(event.id)?;
                gone += 1;
            }
        }
        while let Some(completion) = cq.poll()? {
            let (id, buffer) = &peers[completion.to_wc().ok()?.wr_id as usize];
            cm.post_send(*id, 0, buffer, 0, 16, SendFlags::SIGNALED)?;
        }
    }
    Ok(())
}
