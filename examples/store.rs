//! A key-value store whose clients read values out of the server's memory by RDMA READ, while the server goes on changing
//! them: no program answers a read. On two device models, or on two cards that `--device` names.

use std::process::ExitCode;

use bareverbs_examples::{Result, program};
use bareverbs_node::cm::rdma::{AddrInfo, CmId, ConnParam, EventType, QpInit, SendFlags};
use bareverbs_node::verbs::{Access, Buffer, Remote};
use bareverbs_node::{Cm, DevicePlatform, Options, Unreached};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 6379;
const CLIENTS: usize = 8;
const KEYS: u64 = 256;
/// An entry: version, value, and the version again. The server writes them in this order, so that a reader who finds the same
/// version at both ends has a value that belongs to it.
const ENTRY: usize = 24;

fn main() -> ExitCode {
    let about = "A store whose clients read values by RDMA READ, while they change";
    program::on_devices("store", about, |devices| {
        let pair = devices.pair([SERVER, CLIENT], Options::for_connections(CLIENTS))?;
        let (puts, (gets, again)) = pair.run(server, clients)?;
        println!("{gets} values read by {CLIENTS} clients, {again} of them twice; {puts} written");
        Ok(())
    })
}

/// The value of a key in a version, which both ends can compute.
fn value(key: u64, version: u64) -> u64 {
    (key ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn put(table: &Buffer<'_, DevicePlatform>, key: u64, version: u64) -> Result<()> {
    let at = key as usize * ENTRY;
    table.copy_in(at, &version.to_be_bytes())?;
    table.copy_in(at + 8, &value(key, version).to_be_bytes())?;
    Ok(table.copy_in(at + 16, &version.to_be_bytes())?)
}

/// Tells each client where the table is, and writes values until all have gone. The number of values.
fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<u64> {
    let here = AddrInfo::listen((SERVER, PORT));
    let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
    let pd = cm.device().default_pd()?;
    let table = pd.alloc_buffer(KEYS as usize * ENTRY, Access::REMOTE_READ)?;
    (0..KEYS).try_for_each(|key| put(&table, key, 0))?;
    cm.listen(listener, CLIENTS as u32)?;
    ready();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let id = cm.get_request(listener)?;
        let param = ConnParam {
            private_data: &table.remote(0).to_bytes(),
            ..ConnParam::default()
        };
        cm.accept(id, Some(&param))?;
        clients.push(id);
    }
    let mut puts = 0;
    while let Some(id) = clients.pop() {
        puts += 1;
        put(&table, puts % KEYS, puts)?;
        cm.poll(cm.now())?;
        match cm.try_get_id_event(id)? {
            Some(event) if event.event == EventType::Disconnected => cm.destroy_ep(id)?,
            _ => clients.insert(0, id),
        }
    }
    Ok(puts)
}

/// Reads all keys in each client. The number of values, and of reads in the middle of a change.
fn clients(cm: &mut Cm) -> Result<(u64, u64)> {
    let to = AddrInfo::connect((SERVER, PORT));
    let (mut gets, mut again) = (0, 0);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let id = cm.create_ep(&to, None, Some(&mut QpInit::default()));
        let id = id.map_err(Unreached::resolving(&to))?;
        cm.connect(id, None).map_err(Unreached::connecting(&to))?;
        let event = cm.event(id)?.ok_or("connected without an event")?;
        let table = event.private_data().first_chunk().ok_or("no table")?;
        clients.push((id, Remote::from_bytes(*table), cm.reg_msgs(id, ENTRY)?));
    }
    for key in 0..KEYS {
        for (id, table, inbox) in &clients {
            gets += 1;
            while !get(cm, *id, table.at(key * ENTRY as u64), inbox, key)? {
                again += 1;
            }
        }
    }
    for (id, _, inbox) in clients {
        cm.disconnect(id)?;
        drop(inbox);
        cm.destroy_ep(id)?;
    }
    Ok((gets, again))
}

/// Reads an entry. Whether it was whole.
fn get(
    cm: &mut Cm,
    id: CmId,
    entry: Remote,
    inbox: &Buffer<'_, DevicePlatform>,
    key: u64,
) -> Result<bool> {
    cm.post_read(id, key, inbox.slice(..)?, SendFlags::SIGNALED, entry)?;
    let _ = cm.get_send_comp(id)?;
    let mut words = [[0; 8]; 3];
    inbox.copy_out(0, words.as_flattened_mut())?;
    let [first, found, last] = words.map(u64::from_be_bytes);
    if first == last && found != value(key, first) {
        return Err(format!("{found:#x} is not the value of {key}").into());
    }
    Ok(first == last)
}
