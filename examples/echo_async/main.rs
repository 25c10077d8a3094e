//! An echo server with async/await: tokio, one thread, and a task for each of a hundred clients. On two device models, or on
//! two cards that `--device` names.

use std::process::ExitCode;

use bareverbs_examples::{Result, echo_clients, program};
use bareverbs_node::cm::rdma::{AddrInfo, CmId, EventType, QpInit, SendFlags};
use bareverbs_node::{AsyncCm, Cm, Options, drive};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::select;

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const CLIENTS: usize = 100;
const LEN: usize = 16;

fn main() -> ExitCode {
    let about = "A server of a hundred clients with async/await";
    program::on_devices("echo_async", about, |devices| {
        let mut options = Options::for_connections(CLIENTS);
        options.interrupts = true;
        let pair = devices.pair([SERVER, CLIENT], options)?;
        let clients = |cm: &mut Cm| echo_clients::run(cm, (SERVER, 7), CLIENTS, LEN);
        let (echoed, clients) = pair.run(server, clients)?;
        println!("{clients} clients, {echoed} messages");
        Ok(())
    })
}

fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<usize> {
    let here = AddrInfo::listen((SERVER, 7));
    let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
    cm.listen(listener, CLIENTS as u32)?;
    let cm = AsyncCm::new(cm);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        ready();
        select! {
            echoed = serve(&cm, listener) => echoed,
            // At the card's interrupts, and when something is due.
            Err(error) = drive(&cm) => Err(error.into()),
        }
    })
}

/// Accepts clients until all have come and gone.
async fn serve(cm: &AsyncCm<'_, '_, '_>, listener: CmId) -> Result<usize> {
    let mut connections = FuturesUnordered::new();
    let (mut gone, mut echoed) = (0, 0);
    while gone < CLIENTS {
        select! {
            id = cm.get_request(listener) => connections.push(echo(cm, id?)),
            Some(messages) = connections.next() => {
                echoed += messages?;
                gone += 1;
            }
        }
    }
    Ok(echoed)
}

/// Sends back what one client sends, until it disconnects. The number of messages.
async fn echo(cm: &AsyncCm<'_, '_, '_>, id: CmId) -> Result<usize> {
    let buffer = cm.with(|cm| cm.reg_msgs(id, LEN))?;
    cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?))?;
    cm.accept(id, None).await?;
    let mut messages = 0;
    loop {
        select! {
            received = cm.get_recv_comp(id) => {
                let len = received?.byte_len as usize;
                cm.with(|cm| cm.post_send(id, 0, buffer.slice(..len)?, SendFlags::SIGNALED))?;
                let _ = cm.get_send_comp(id).await?;
                cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?))?;
                messages += 1;
            }
            event = cm.get_id_event(id) => if event?.event == EventType::Disconnected {
                break;
            }
        }
    }
    cm.disconnect(id).await?;
    drop(buffer);
    cm.with(|cm| cm.destroy_ep(id))?;
    Ok(messages)
}
