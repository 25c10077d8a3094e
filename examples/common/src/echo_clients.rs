//! Clients of an echo server, all at once.

use bareverbs::cm::rdma::{AddrInfo, QpInit, SendFlags, SockAddr};
use bareverbs_node::{Cm, Unreached};

use crate::Result;

/// Connects `count` clients to a server, has each send a message of `len` bytes, and compares what comes back. The number of
/// answers.
pub fn run(
    cm: &mut Cm<'_, '_>,
    server: impl Into<SockAddr>,
    count: usize,
    len: usize,
) -> Result<usize> {
    let to = AddrInfo::connect(server);
    let mut clients = Vec::new();
    for number in 0..count {
        let id = cm
            .create_ep(&to, None, Some(&mut QpInit::default()))
            .map_err(Unreached::resolving(&to))?;
        let buffer = cm.reg_msgs(id, 2 * len)?;
        buffer.fill(0, len, number as u8)?;
        cm.post_recv(id, 0, buffer.slice(len..2 * len)?)?;
        cm.connect(id, None).map_err(Unreached::connecting(&to))?;
        clients.push((id, buffer));
    }
    for (id, buffer) in &clients {
        cm.post_send(*id, 0, buffer.slice(..len)?, SendFlags::SIGNALED)?;
    }
    for (id, buffer) in &clients {
        let received = cm.get_recv_comp(*id)?.byte_len as usize;
        let mut answer = vec![0; 2 * len];
        buffer.copy_out(0, &mut answer)?;
        if received != len || answer[..len] != answer[len..] {
            return Err("an answer is not what was sent".into());
        }
    }
    for (id, buffer) in clients {
        cm.disconnect(id)?;
        drop(buffer);
        cm.destroy_ep(id)?;
    }
    Ok(count)
}
