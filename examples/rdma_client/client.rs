//! The client.

use bareverbs::cm::rdma::{AddrInfo, RdmaCm, Resolver, SendFlags};
use bareverbs::verbs::Platform;

use crate::pair::{self, LEN, Message, Result};
use crate::unreached::{CONNECTING, RESOLVING, step_to};

/// What it says.
pub(crate) const HELLO: &Message = b"good morning! :)";

/// Connects, sends a message, and waits for the server's.
pub(crate) fn run<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    server: &AddrInfo,
) -> Result<Message> {
    let id = cm
        .create_ep(server, None, Some(&mut pair::queues()))
        .map_err(step_to(RESOLVING, server))?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, &inbox, 0, LEN)?;
    cm.connect(id, None).map_err(step_to(CONNECTING, server))?;

    cm.post_send_inline(id, 0, HELLO, SendFlags::SIGNALED)?;
    pair::check(&cm.get_send_comp_until(id, pair::soon(cm))?)?;
    pair::check(&cm.get_recv_comp_until(id, pair::soon(cm))?)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;

    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    Ok(message)
}
