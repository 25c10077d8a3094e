//! The ping-pong itself, message for message what rdma-core's `rping` does, so that either end can be that program.
//!
//! The client advertises a buffer; the server reads it (RDMA READ) and says so; the client advertises a second one; the
//! server writes there what it read (RDMA WRITE) and says so; the client compares the two.

use std::error::Error;
use std::time::Duration;

use bareverbs::cm::mad::RejectReason;
use bareverbs::cm::rdma::{AddrInfo, CmId, ConnParam, RdmaCm, RdmaError, Resolver, SendFlags};
use bareverbs::verbs::mr::{Access, Buffer};
use bareverbs::verbs::{Platform, RKey};

use crate::channel::{Channel, Heard, SILENCE};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// An advertisement: address, key, size, all big-endian.
const ADVERT: usize = 16;
/// The connection, for advertisements.
type End<'d, P> = Channel<'d, P, ADVERT>;

/// The other end's next advertisement. `None`: it has disconnected.
fn advert<'d, P: Platform, R: Resolver>(
    end: &End<'d, P>,
    cm: &mut RdmaCm<'_, 'd, P, R>,
    patience: Duration,
) -> Result<Option<Advert>> {
    match end.message(cm, patience)? {
        Heard::Message(bytes) => Ok(Some(Advert::from_bytes(&bytes))),
        Heard::Disconnected => Ok(None),
        Heard::Nothing => Err(format!("the other end has said nothing for {patience:?}").into()),
    }
}

#[derive(Clone, Copy)]
struct Advert {
    addr: u64,
    rkey: RKey,
    size: u32,
}

impl Advert {
    fn of<P: Platform>(buffer: &Buffer<'_, P>) -> Self {
        Self {
            addr: buffer.addr(),
            rkey: buffer.rkey(),
            size: buffer.len() as u32,
        }
    }

    fn to_bytes(self) -> [u8; ADVERT] {
        let mut bytes = [0; ADVERT];
        bytes[0..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; ADVERT]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            addr: u64::from(word(0)) << 32 | u64::from(word(4)),
            rkey: RKey(word(8)),
            size: word(12),
        }
    }
}

/// What a server did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) pings: u32,
}

/// Whom a server waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clients<'a> {
    /// So many, one after the other.
    pub(crate) times: u32,
    /// They are refused, and told this.
    pub(crate) reject: Option<&'a [u8]>,
}

/// Listens, serves one client after the other until it disconnects, and cleans up. `listening` is called once clients may
/// come.
pub(crate) fn serve<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    size: u32,
    clients: Clients<'_>,
    listening: impl FnOnce(),
    mut ping: impl FnMut(u32),
) -> Result<Served> {
    let listener = cm.create_ep(address, None, Some(&mut End::<P>::queues()))?;
    cm.listen(listener, 16)?;
    listening();
    let mut served = Served::default();
    for _ in 0..clients.times {
        let id = cm.get_request(listener)?;
        if let Some(why) = clients.reject {
            cm.reject(id, why)?;
            cm.destroy_ep(id)?;
        } else {
            serve_one(cm, id, size, &mut served, &mut ping)?;
        }
    }
    cm.destroy_ep(listener)?;
    Ok(served)
}

fn serve_one<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    id: CmId,
    size: u32,
    served: &mut Served,
    ping: &mut impl FnMut(u32),
) -> Result<()> {
    let end = End::new(cm, id)?;
    let buffer = cm
        .pd(id)?
        .alloc_buffer(size as usize, Access::LOCAL_WRITE)?;
    cm.accept(id, None)?;

    let read_or_write = |asked: &Advert| match asked.size {
        wanted if wanted <= size => Ok(wanted as usize),
        wanted => Err(format!(
            "the client wants {wanted} bytes, there is room for {size} (-S)"
        )),
    };
    while let Some(source) = advert(&end, cm, Duration::MAX)? {
        let len = read_or_write(&source)?;
        cm.post_read(
            id,
            0,
            &buffer,
            0,
            len,
            SendFlags::SIGNALED,
            source.addr,
            source.rkey,
        )?;
        end.sent(cm, "RDMA READ")?;
        let go_ahead = Advert::of(&buffer).to_bytes();
        end.tell(cm, &go_ahead)?;

        let Some(sink) = advert(&end, cm, SILENCE)? else {
            break;
        };
        let len = read_or_write(&sink)?;
        cm.post_write(
            id,
            0,
            &buffer,
            0,
            len,
            SendFlags::SIGNALED,
            sink.addr,
            sink.rkey,
        )?;
        end.sent(cm, "RDMA WRITE")?;
        end.tell(cm, &go_ahead)?;
        served.pings += 1;
        ping(served.pings);
    }
    cm.disconnect(id)?;
    drop((buffer, end));
    cm.destroy_ep(id)?;
    Ok(())
}

/// What a client did.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pinged {
    /// Round trip of each ping.
    pub(crate) times: Vec<Duration>,
    /// Bytes that came back and were compared.
    pub(crate) verified: u64,
    /// From the call of `connect` to its return.
    pub(crate) connect: Duration,
    /// All the pings.
    pub(crate) elapsed: Duration,
    /// When `connect` was called.
    pub(crate) connect_at: Duration,
    /// Firmware commands for the endpoint and its connection, without memory registration.
    pub(crate) commands: u64,
}

/// What a client is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Pings.
    pub(crate) count: u32,
    /// Compare what comes back.
    pub(crate) validate: bool,
    /// What the server is told when it is asked for the connection.
    pub(crate) private_data: &'a [u8],
}

/// Connects, pings, disconnects and cleans up.
pub(crate) fn ping<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    wanted: Wanted<'_>,
    mut connected: impl FnMut(&mut RdmaCm<'_, '_, P, R>, &Pinged),
    mut done: impl FnMut(u32, &[u8]),
) -> Result<Pinged> {
    let Wanted {
        size,
        count,
        validate,
        private_data,
    } = wanted;
    let param = ConnParam {
        private_data,
        ..ConnParam::default()
    };
    let mut result = Pinged {
        times: Vec::with_capacity(count as usize),
        ..Pinged::default()
    };
    let commands = cm.device().commands_executed();
    let id = cm.create_ep(address, None, Some(&mut End::<P>::queues()))?;
    let registered = cm.device().commands_executed();
    let end = End::new(cm, id)?;
    let start = cm.reg_read(id, size)?;
    let sink = cm.reg_write(id, size)?;
    let registered = cm.device().commands_executed() - registered;
    result.connect_at = cm.now();
    let mut outcome = cm.connect(id, Some(&param));
    if let Err(RdmaError::Rejected(RejectReason::STALE_CONNECTION)) = outcome {
        // The server has a connection to a queue pair of this number, of a process that did not end in order.
        cm.renew_qp(id, &mut End::<P>::queues())?;
        end.expect_message(cm)?;
        outcome = cm.connect(id, Some(&param));
    }
    if let Err(error) = outcome {
        return Err(refusal(cm, id, error));
    }
    result.connect = cm.now() - result.connect_at;
    result.commands = cm.device().commands_executed() - commands - registered;
    connected(cm, &result);

    let (mut sent, mut received) = (vec![0; size], vec![0; size]);
    let began = cm.now();
    for number in 0..count {
        let at = cm.now();
        fill(&mut sent, number);
        start.copy_in(0, &sent)?;
        end.tell(cm, &Advert::of(&start).to_bytes())?;
        advert(&end, cm, SILENCE)?.ok_or("the server disconnected")?;
        end.tell(cm, &Advert::of(&sink).to_bytes())?;
        advert(&end, cm, SILENCE)?.ok_or("the server disconnected")?;
        result.times.push(cm.now() - at);
        if validate {
            sink.copy_out(0, &mut received)?;
            if let Some(at) = sent
                .iter()
                .zip(&received)
                .position(|(sent, received)| sent != received)
            {
                let (sent, received) = (sent[at], received[at]);
                return Err(format!(
                    "ping {number}: byte {at} came back as {received:#04x}, not {sent:#04x}"
                )
                .into());
            }
            result.verified += size as u64;
            // What is there now must not pass for the answer to the next ping.
            sink.fill(0, size, 0)?;
        }
        done(number, &sent);
    }
    result.elapsed = cm.now() - began;
    let commands = cm.device().commands_executed();
    cm.disconnect(id)?;
    drop((start, sink, end));
    cm.destroy_ep(id)?;
    log::debug!(
        "taking the connection down took {} commands",
        cm.device().commands_executed() - commands
    );
    Ok(result)
}

/// Why there is no connection, with what the other end told beside its reason.
fn refusal<P: Platform, R: Resolver>(
    cm: &RdmaCm<'_, '_, P, R>,
    id: CmId,
    error: RdmaError,
) -> Box<dyn Error + Send + Sync> {
    let told = match (error, cm.event(id)) {
        (RdmaError::Rejected(_), Ok(Some(event))) => {
            let data = event.private_data();
            // The field is padded with zeros, and nobody knows how many of them were meant.
            let len = data
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |at| at + 1);
            data[..len].escape_ascii().to_string()
        }
        _ => String::new(),
    };
    match told.as_str() {
        "" => error.into(),
        told => format!("{error}, and says \"{told}\"").into(),
    }
}

/// The pattern of rping: a heading with the number of the ping, then characters from one that moves on with every ping.
fn fill(message: &mut [u8], number: u32) {
    let heading = format!("rdma-ping-{number}: ");
    let (first, last) = (b'A', b'z');
    let mut character = first + (number % u32::from(last - first + 1)) as u8;
    let heading = heading.as_bytes();
    let len = heading.len().min(message.len());
    message[..len].copy_from_slice(&heading[..len]);
    for byte in &mut message[len..] {
        *byte = character;
        character = if character == last {
            first
        } else {
            character + 1
        };
    }
    if let Some(end) = message.last_mut() {
        *end = 0;
    }
}
