//! The server.

use bareverbs::cm::rdma::{AddrInfo, RdmaCm, Resolver, SendFlags};
use bareverbs::verbs::Platform;

use crate::pair::{self, LEN, Message, Result};

/// What it answers.
pub(crate) const REPLY: &Message = b"good evening. :(";

/// Waits for a client and its message, and answers. `listening` is called once one may come.
pub(crate) fn run<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    listening: &mut dyn FnMut(),
) -> Result<Message> {
    let listener = cm.create_ep(address, None, Some(&mut pair::queues()))?;
    cm.listen(listener, 1)?;
    listening();
    // It has a queue pair such as the listener was made with.
    let id = cm.get_request(listener)?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, &inbox, 0, LEN)?;
    cm.accept(id, None)?;

    pair::check(&cm.get_recv_comp_until(id, pair::soon(cm))?)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;
    cm.post_send_inline(id, 0, REPLY, SendFlags::SIGNALED)?;
    pair::check(&cm.get_send_comp_until(id, pair::soon(cm))?)?;

    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    cm.destroy_ep(listener)?;
    Ok(message)
}
