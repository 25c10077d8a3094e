//! An RPC server whose handlers run on all threads of tokio's runtime, while one thread for each card drives it: a
//! `NodeHandle` is what tasks of any thread have of the connection manager. On two device models, or on two cards that
//! `--device` names.

use std::process::ExitCode;

use bareverbs_examples::{Result, program};
use bareverbs_node::cm::rdma::{AddrInfo, CmId, QpInit, SendFlags};
use bareverbs_node::{AsyncCm, Options, Pair};
use futures_util::future::try_join_all;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 7);
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const CLIENTS: u64 = 16;
const CALLS: u64 = 32;
/// A request and its answer: a number.
const LEN: usize = 8;

fn main() -> ExitCode {
    let about = "An RPC server whose handlers run on all threads of tokio";
    program::on_devices("rpc", about, |devices| {
        let mut options = Options::for_connections(CLIENTS as usize);
        options.interrupts = true;
        let pair = devices.pair([SERVER.0, CLIENT], options)?;
        tokio::runtime::Runtime::new()?.block_on(both_ends(pair))
    })
}

async fn both_ends(pair: Pair) -> Result<()> {
    let (server, server_ends) = pair.server.spawn().await?;
    let (client, client_ends) = pair.client.spawn().await?;
    let (ready, is_ready) = oneshot::channel();
    let workers = Handle::current();
    let served = tokio::spawn(async move {
        let work = async move |cm: &AsyncCm<'_, '_, '_>| serve(cm, &workers, ready).await;
        server.run(work).await?
    });
    is_ready.await?;
    let clients = (0..CLIENTS).map(|number| {
        let node = client.clone();
        let work = async move |cm: &AsyncCm<'_, '_, '_>| call(cm, number).await;
        tokio::spawn(async move { node.run(work).await? })
    });
    let called: Result<()> = try_join_all(clients).await?.into_iter().collect();
    called?;
    drop(client);
    println!("{CLIENTS} clients, {} calls", served.await??);
    client_ends.await?;
    Ok(server_ends.await?)
}

/// The handler of a call: it may compute and wait as it likes, as the card is driven elsewhere.
async fn square(number: u64) -> u64 {
    number * number
}

/// Serves all clients at once. The number of calls.
async fn serve(
    cm: &AsyncCm<'_, '_, '_>,
    workers: &Handle,
    ready: oneshot::Sender<()>,
) -> Result<usize> {
    let here = AddrInfo::listen(SERVER);
    let listener = cm
        .create_ep(&here, None, Some(&mut QpInit::default()))
        .await?;
    cm.with(|cm| cm.listen(listener, CLIENTS as u32))?;
    let _ = ready.send(());
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(answer(cm, cm.get_request(listener).await?, workers));
    }
    Ok(try_join_all(connections).await?.iter().sum())
}

/// Answers the calls of one client. Their number.
async fn answer(cm: &AsyncCm<'_, '_, '_>, id: CmId, workers: &Handle) -> Result<usize> {
    let buffer = cm.with(|cm| cm.reg_msgs(id, 2 * LEN))?;
    cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?))?;
    cm.accept(id, None).await?;
    for calls in 0.. {
        let _ = tokio::select! {
            // Disconnected.
            event = cm.get_id_event(id) => return event.map(|_| calls).map_err(Into::into),
            received = cm.get_recv_comp(id) => received?,
        };
        let mut request = [0; LEN];
        buffer.copy_out(0, &mut request)?;
        cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?))?;
        let reply = workers.spawn(square(u64::from_be_bytes(request))).await?;
        buffer.copy_in(LEN, &reply.to_be_bytes())?;
        cm.with(|cm| cm.post_send(id, 0, buffer.slice(LEN..2 * LEN)?, SendFlags::SIGNALED))?;
        let _ = cm.get_send_comp(id).await?;
    }
    unreachable!("clients leave before that many calls")
}

/// Calls again and again, and compares the answers.
async fn call(cm: &AsyncCm<'_, '_, '_>, number: u64) -> Result<()> {
    let to = AddrInfo::connect(SERVER);
    let id = cm
        .create_ep(&to, None, Some(&mut QpInit::default()))
        .await?;
    let buffer = cm.with(|cm| cm.reg_msgs(id, 2 * LEN))?;
    cm.connect(id, None).await?;
    for argument in (1..=CALLS).map(|call| call * CLIENTS + number) {
        cm.with(|cm| cm.post_recv(id, 0, buffer.slice(..LEN)?))?;
        buffer.copy_in(LEN, &argument.to_be_bytes())?;
        cm.with(|cm| cm.post_send(id, 0, buffer.slice(LEN..2 * LEN)?, SendFlags::SIGNALED))?;
        let _ = cm.get_send_comp(id).await?;
        let _ = cm.get_recv_comp(id).await?;
        let mut answer = [0; LEN];
        buffer.copy_out(0, &mut answer)?;
        assert_eq!(u64::from_be_bytes(answer), square(argument).await);
    }
    Ok(cm.disconnect(id).await?)
}
