//! The smallest server of synchronous calls, as rdma-core's `rdma_server`: it serves one client, and ends.
//!
//! By default a client runs in this process too, on a second device model.

use std::process::ExitCode;

use bareverbs::cm::rdma::AddrInfo;
use bareverbs_examples::Result;
use bareverbs_node::Cm;
use hello::{Ends, LEN, Message, REPLY};

#[path = "rdma_client/hello.rs"]
mod hello;

fn main() -> ExitCode {
    hello::main(&Ends {
        is_server: true,
        server,
        client: hello::call,
    })
}

/// Waits for a client and its message, and answers. `listening` is called once one may come.
fn server(cm: &mut Cm<'_, '_>, here: &AddrInfo, listening: &mut dyn FnMut()) -> Result<Message> {
    let listener = cm.create_ep(here, None, Some(&mut hello::queues()))?;
    cm.listen(listener, 1)?;
    listening();
    // It has a queue pair such as the listener was made with.
    let id = cm.get_request(listener)?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, inbox.slice(..LEN)?)?;
    cm.accept(id, None)?;

    hello::receive(cm, id)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;
    hello::send(cm, id, REPLY)?;

    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    cm.destroy_ep(listener)?;
    Ok(message)
}
