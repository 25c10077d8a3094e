//! The smallest client of synchronous calls, as rdma-core's `rdma_client`: sixteen bytes there, sixteen bytes back.
//!
//! By default a server runs in this process too, on a second device model.

use std::process::ExitCode;

use bareverbs::cm::rdma::AddrInfo;
use bareverbs_examples::Result;
use bareverbs_node::{Cm, Unreached};
use hello::{Ends, HELLO, LEN, Message};

mod hello;
#[cfg(test)]
mod tests;

const ENDS: Ends = Ends {
    is_server: false,
    server: hello::serve,
    client,
};

fn main() -> ExitCode {
    hello::main(&ENDS)
}

/// Connects, sends a message, and waits for the server's.
fn client(cm: &mut Cm<'_, '_>, server: &AddrInfo) -> Result<Message> {
    let id = cm
        .create_ep(server, None, Some(&mut hello::queues()))
        .map_err(Unreached::resolving(server))?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, inbox.slice(..LEN)?)?;
    cm.connect(id, None)
        .map_err(Unreached::connecting(server))?;

    hello::send(cm, id, HELLO)?;
    hello::receive(cm, id)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;

    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    Ok(message)
}
