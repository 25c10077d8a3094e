//! A storage target: it moves blocks into and out of its clients' memory by RDMA WRITE and READ, and takes the requests of all
//! of them from one queue (an SRQ). A client dies in the middle, without a word; the others go on.

use std::process::ExitCode;

use bareverbs_examples::{Result, program};
use bareverbs_node::cm::rdma::{AddrInfo, CmId, EventType, QpInit, RdmaError, SendFlags, SrqAttr};
use bareverbs_node::verbs::{Access, Buffer, Remote};
use bareverbs_node::{Cm, DevicePlatform, Options, Unreached};

const TARGET: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 3260;
const CLIENTS: usize = 4;
const BLOCK: usize = 4096;
/// A request: the block's number, 1 to write it or 0 to read it, and where the client's memory is.
const REQUEST: usize = 2 + Remote::LEN;
const REQUESTS: usize = 16;

fn main() -> ExitCode {
    let about = "A storage target whose clients share a receive queue; one of them dies";
    program::on_devices("storage_target", about, |devices| {
        let pair = devices.pair([TARGET, CLIENT], Options::for_connections(CLIENTS))?;
        let ((left, lost), ()) = pair.run(target, clients)?;
        println!("{left} clients left, {lost} was lost");
        Ok(())
    })
}

/// Serves the clients until each has left or is lost. How many have.
fn target(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<(usize, usize)> {
    let here = AddrInfo::listen((TARGET, PORT));
    let listener = cm.create_ep(&here, None, None)?;
    let pd = cm.device().default_pd()?;
    let disk = pd.alloc_buffer(CLIENTS * BLOCK, Access::LOCAL_WRITE)?;
    let requests = pd.alloc_buffer(REQUESTS * REQUEST, Access::LOCAL_WRITE)?;
    let mut sizes = SrqAttr::default();
    (sizes.max_wr, sizes.max_sge) = (REQUESTS as u32, 1);
    cm.create_srq(listener, None, &mut sizes)?;
    for slot in 0..REQUESTS {
        cm.post_recv(listener, slot as u64, &requests, slot * REQUEST, REQUEST)?;
    }
    cm.listen(listener, CLIENTS as u32)?;
    ready();
    let (mut clients, mut left, mut lost) = (Vec::new(), 0, 0);
    for _ in 0..CLIENTS {
        let id = cm.get_request(listener)?;
        let mut queues = QpInit::with_queues(8, 0);
        (queues.srq, queues.cap.max_inline_data) = (Some(cm.srq_handle(listener)?), 1);
        cm.create_qp(id, None, &mut queues)?;
        cm.accept(id, None)?;
        clients.push(id);
    }
    // Answers a client's request, if there is one: moves the block, then sends its number.
    let serve = |cm: &mut Cm, id| {
        while cm.try_get_send_comp(id)?.is_some() {}
        let Some(received) = cm.try_get_recv_comp(id)? else {
            return Ok(());
        };
        let (at, mut request) = (received.wr_id as usize * REQUEST, [0; REQUEST]);
        requests.copy_out(at, &mut request)?;
        cm.post_recv(listener, received.wr_id, &requests, at, REQUEST)?;
        let [block, write, remote @ ..] = request;
        let at = usize::from(block) * BLOCK;
        let (piece, remote) = (disk.slice(at..at + BLOCK)?, Remote::from_bytes(remote));
        match write {
            0 => cm.post_write(id, 0, piece, SendFlags::SIGNALED, remote)?,
            _ => cm.post_read(id, 0, piece, SendFlags::SIGNALED, remote)?,
        }
        // Not before what was read is there.
        cm.post_send_inline(id, 0, &[block], SendFlags::SIGNALED | SendFlags::FENCE)
    };
    while let Some(id) = clients.pop() {
        cm.poll(cm.now())?;
        match serve(cm, id).and_then(|()| cm.try_get_id_event(id)) {
            Err(RdmaError::Completion(_) | RdmaError::OutOfRange(_)) => lost += 1,
            Ok(Some(event)) if event.event == EventType::Disconnected => left += 1,
            Err(error) => return Err(error.into()),
            Ok(_) => {
                clients.insert(0, id);
                continue;
            }
        }
        cm.destroy_id(id)?;
    }
    Ok((left, lost))
}

/// Has each client write its block and read it back, 32 times. The first one is gone after 16.
fn clients(cm: &mut Cm) -> Result<()> {
    let to = AddrInfo::connect((TARGET, PORT));
    let (mut clients, mut dead) = (Vec::new(), None);
    for _ in 0..CLIENTS {
        let mut queues = QpInit::default();
        queues.cap.max_inline_data = REQUEST as u32;
        let id = cm.create_ep(&to, None, Some(&mut queues));
        let id = id.map_err(Unreached::resolving(&to))?;
        let memory = cm.reg(id, BLOCK + 1, Access::REMOTE_READ | Access::REMOTE_WRITE)?;
        cm.connect(id, None).map_err(Unreached::connecting(&to))?;
        clients.push((id, memory));
    }
    for byte in 1..=32 {
        for (block, (id, memory)) in clients.iter().enumerate() {
            for write in [1, 0] {
                memory.fill(0, BLOCK, write * byte)?;
                cm.post_recv(*id, 0, memory, BLOCK, 1)?;
                request(cm, *id, memory, [block as u8, write])?;
                let _ = cm.get_recv_comp(*id)?;
            }
            let mut found = [0; BLOCK];
            memory.copy_out(0, &mut found)?;
            assert_eq!(found, [byte; BLOCK], "block {block} is what was written");
        }
        if byte == 16 {
            // As if its process were killed: the target waits for a receive, and then for any answer.
            let (id, memory) = clients.remove(0);
            request(cm, id, &memory, [0, 0])?;
            cm.destroy_qp(id)?;
            dead = Some(id);
        }
    }
    clients.iter().try_for_each(|(id, _)| cm.disconnect(*id))?;
    // Until the target has given it up.
    while dead.is_some_and(|id| matches!(cm.try_get_id_event(id), Ok(None))) {
        cm.poll(cm.now())?;
    }
    Ok(())
}

fn request(
    cm: &mut Cm,
    id: CmId,
    memory: &Buffer<'_, DevicePlatform>,
    words: [u8; 2],
) -> Result<()> {
    let request = [&words[..], &memory.remote(0).to_bytes()].concat();
    cm.post_send_inline(id, 0, &request, SendFlags::SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    Ok(())
}
