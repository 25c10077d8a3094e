//! A message to a server and back over an RDMA connection: on two device models, or on two cards that `--device` names.

use std::process::ExitCode;

use bareverbs_examples::{Result, program};
use bareverbs_node::cm::rdma::{AddrInfo, QpInit, SendFlags};
use bareverbs_node::{Cm, Options, Unreached};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

fn main() -> ExitCode {
    let about = "A message to a server and back over an RDMA connection";
    program::on_devices("echo", about, |devices| {
        // Without a command line: `Pair::from_env(SERVER, CLIENT)?`.
        let pair = devices.pair([SERVER, CLIENT], Options::default())?;
        let ((), answer) = pair.run(server, client)?;
        println!("{answer}");
        Ok(())
    })
}

fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<()> {
    let here = AddrInfo::listen((SERVER, 7));
    let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
    cm.listen(listener, 1)?;
    ready();
    let id = cm.get_request(listener)?;
    let buffer = cm.reg_msgs(id, 64)?;
    cm.post_recv(id, 0, buffer.slice(..64)?)?;
    cm.accept(id, None)?;
    let len = cm.get_recv_comp(id)?.byte_len as usize;
    cm.post_send(id, 0, buffer.slice(..len)?, SendFlags::SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    Ok(())
}

fn client(cm: &mut Cm) -> Result<String> {
    let to = AddrInfo::connect((SERVER, 7));
    let id = cm.create_ep(&to, None, Some(&mut QpInit::default()));
    let id = id.map_err(Unreached::resolving(&to))?;
    let buffer = cm.reg_msgs(id, 64)?;
    buffer.copy_in(0, b"hello")?;
    cm.post_recv(id, 0, buffer.slice(32..64)?)?;
    cm.connect(id, None).map_err(Unreached::connecting(&to))?;
    cm.post_send(id, 0, buffer.slice(..5)?, SendFlags::SIGNALED)?;
    let mut answer = vec![0; cm.get_recv_comp(id)?.byte_len as usize];
    buffer.copy_out(32, &mut answer)?;
    Ok(String::from_utf8(answer)?)
}
