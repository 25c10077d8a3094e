//! A message from a client to a server. `hello` has both ends, `hello server` and `hello client` have one each.

use bareverbs_node::cm::rdma::{AddrInfo, QpInit, SendFlags};
use bareverbs_node::{Cm, Node, Pair, Result, Unreached};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<()> {
    let here = AddrInfo::listen((SERVER, 7471));
    let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
    cm.listen(listener, 1)?;
    ready();
    let id = cm.get_request(listener)?;
    let inbox = cm.reg_msgs(id, 16)?;
    cm.post_recv(id, 0, inbox.slice(..)?)?;
    cm.accept(id, None)?;
    let mut message = vec![0; cm.get_recv_comp(id)?.byte_len as usize];
    inbox.copy_out(0, &mut message)?;
    println!("the server got {:?}", String::from_utf8(message)?);
    Ok(())
}

fn client(cm: &mut Cm) -> Result<()> {
    let to = AddrInfo::connect((SERVER, 7471));
    let id = cm.create_ep(&to, None, Some(&mut QpInit::default()));
    let id = id.map_err(Unreached::resolving(&to))?;
    let message = cm.reg_msgs(id, 5)?;
    message.copy_in(0, b"hello")?;
    cm.connect(id, None).map_err(Unreached::connecting(&to))?;
    cm.post_send(id, 0, message.slice(..)?, SendFlags::SIGNALED)?;
    let sent = cm.get_send_comp(id)?;
    println!("the client's {:?} was acknowledged", sent.opcode);
    Ok(())
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("server") => Node::from_env(SERVER)?.run(|cm| server(cm, &mut || println!("ready"))),
        Some("client") => Node::from_env(CLIENT)?.run(client),
        _ => Pair::from_env(SERVER, CLIENT)?
            .run(server, client)
            .map(drop),
    }
}
