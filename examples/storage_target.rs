//! A storage target: it moves blocks into and out of its clients' memory by RDMA WRITE and READ, and takes the requests of all
//! of them from one queue (an SRQ). Two clients die without a word; the target notices, and the others go on.

use std::process::ExitCode;
use std::time::Duration;

use bareverbs_examples::{Result, program};
use bareverbs_node::cm::rdma::{
    AddrInfo, EventType, IdOption, QpInit, RdmaError, SendFlags, SrqAttr,
};
use bareverbs_node::verbs::{Access, Remote};
use bareverbs_node::{Cm, Options};

const TARGET: ([u8; 4], u16) = ([10, 0, 0, 1], 3260);
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const CLIENTS: usize = 4;
const BLOCK: usize = 4096;
/// The interval at which the target asks an idle client's card for an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// 67 ms, and all eight tries of the target's, each of which may take four times as long.
const ACK_TIMEOUT: u8 = 14;
const TRIES: Duration = Duration::from_millis(8 * 4 * 67);
/// A request: the block's number, 1 to write it or 0 to read it, and where the client's memory is.
const REQUEST: usize = 2 + Remote::LEN;

fn main() -> ExitCode {
    let about = "A storage target whose clients share a receive queue; two of them die";
    program::on_devices("storage_target", about, |devices| {
        let pair = devices.pair([TARGET.0, CLIENT], Options::for_connections(CLIENTS))?;
        pair.run(target, clients).map(drop)
    })
}

/// Serves the clients until each has left or is lost.
fn target(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<()> {
    let listener = cm.create_ep(&AddrInfo::listen(TARGET), None, None)?;
    let mut sizes = SrqAttr::default();
    (sizes.max_wr, sizes.max_sge) = (16, 1);
    cm.create_srq(listener, None, &mut sizes)?;
    let disk = cm.reg_msgs(listener, CLIENTS * BLOCK)?;
    let requests = cm.reg_msgs(listener, 16 * REQUEST)?;
    for slot in 0..16 {
        let at = slot as usize * REQUEST;
        cm.post_recv(listener, slot, requests.slice(at..at + REQUEST)?)?;
    }
    cm.set_option(listener, IdOption::KeepAlive(Some(KEEP_ALIVE)))?;
    cm.set_option(listener, IdOption::AckTimeout(ACK_TIMEOUT))?;
    cm.listen(listener, CLIENTS as u32)?;
    ready();
    let (mut clients, mut left, mut lost, mut silent) = (Vec::new(), 0, 0, 0);
    for _ in 0..CLIENTS {
        let id = cm.get_request(listener)?;
        let mut queues = QpInit::with_queues(8, 0);
        (queues.srq, queues.cap.max_inline_data) = (Some(cm.srq_handle(listener)?), 1);
        cm.create_qp(id, None, &mut queues)?;
        cm.accept(id, None)?;
        clients.push(id);
    }
    // Answers a client's request, if there is one: moves the block, and then sends its number.
    let serve = |cm: &mut Cm, id| {
        while cm.try_get_send_comp(id)?.is_some() {}
        let Some(received) = cm.try_get_recv_comp(id)? else {
            return Ok(());
        };
        let (at, mut request) = (received.wr_id as usize * REQUEST, [0; REQUEST]);
        requests.copy_out(at, &mut request)?;
        cm.post_recv(listener, received.wr_id, requests.slice(at..at + REQUEST)?)?;
        let [block, write, remote @ ..] = request;
        let at = usize::from(block) * BLOCK;
        let (piece, remote) = (disk.slice(at..at + BLOCK)?, Remote::from_bytes(remote));
        match write {
            0 => cm.post_write(id, 0, piece, SendFlags::SIGNALED, remote)?,
            _ => cm.post_read(id, 0, piece, SendFlags::SIGNALED, remote)?,
        }
        cm.post_send_inline(id, 0, &[block], SendFlags::SIGNALED | SendFlags::FENCE)
    };
    while let Some(id) = clients.pop() {
        cm.poll(cm.now())?;
        match serve(cm, id).and_then(|()| cm.try_get_id_event(id)) {
            Err(RdmaError::Completion(_) | RdmaError::OutOfRange(_)) => lost += 1,
            event => match event?.filter(|event| event.event == EventType::Disconnected) {
                Some(event) if event.status == 0 => left += 1,
                Some(_) => silent += 1,
                None => {
                    clients.insert(0, id);
                    continue;
                }
            },
        }
        cm.destroy_id(id)?;
    }
    println!("{left} clients left, {lost} was lost with a request, {silent} while it was idle");
    Ok(())
}

/// Lets the first client die after a request, and the second one idle. The others write their blocks and read them back.
fn clients(cm: &mut Cm) -> Result<()> {
    let to = AddrInfo::connect(TARGET);
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let id = cm.create_ep(&to, None, Some(&mut QpInit::default()))?;
        // A block, the answer, and the request, which always names this block.
        let memory = cm.reg(id, BLOCK + 1 + REQUEST, access)?;
        memory.copy_in(BLOCK + 3, &memory.remote(0).to_bytes())?;
        cm.connect(id, None)?;
        clients.push((id, memory));
    }
    // Two clients end like killed processes. The target has a message to send to the first, and waits for one from the second.
    let (busy, memory) = clients.remove(0);
    cm.post_send(
        busy,
        0,
        memory.slice(BLOCK + 1..BLOCK + 1 + REQUEST)?,
        SendFlags::SIGNALED,
    )?;
    let _ = cm.get_send_comp(busy)?;
    let (idle, _) = clients.remove(0);
    let died = cm.now();
    [busy, idle].iter().try_for_each(|id| cm.destroy_qp(*id))?;
    for byte in 1..=32 {
        for (block, (id, memory)) in clients.iter().enumerate() {
            for write in [1, 0] {
                memory.fill(0, BLOCK, write * byte)?;
                memory.copy_in(BLOCK + 1, &[block as u8, write])?;
                cm.post_recv(*id, 0, memory.slice(BLOCK..BLOCK + 1)?)?;
                cm.post_send(
                    *id,
                    0,
                    memory.slice(BLOCK + 1..BLOCK + 1 + REQUEST)?,
                    SendFlags::SIGNALED,
                )?;
                let _ = (cm.get_send_comp(*id)?, cm.get_recv_comp(*id)?);
            }
            let mut found = [0; BLOCK];
            memory.copy_out(0, &mut found)?;
            assert_eq!(found, [byte; BLOCK], "block {block} is what was written");
        }
    }
    clients.iter().try_for_each(|(id, _)| cm.disconnect(*id))?;
    for dead in [busy, idle] {
        while cm.try_get_id_event(dead)?.is_none() {
            cm.poll(cm.now())?;
        }
    }
    let noticed = (cm.now() - died).as_secs_f32();
    let limit = (2 * KEEP_ALIVE + TRIES).as_secs_f32();
    println!("both deaths were noticed after {noticed:.1} s, at most {limit:.1} s");
    Ok(())
}
