//! The ping-pong itself, message for message what rdma-core's `rping` does, so that either end can be that program.
//!
//! The client advertises a buffer; the server reads it (RDMA READ) and says so; the client advertises a second one; the
//! server writes there what it read (RDMA WRITE) and says so; the client compares the two.

use std::error::Error;
use std::time::Duration;

use bareverbs::cm::rdma::{
    AddrInfo, CmId, IdState, QpInit, RdmaCm, RdmaError, Resolver, SendFlags,
};
use bareverbs::verbs::mr::{Access, Buffer};
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Platform, RKey, Wc, WcStatus};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// An advertisement: address, key, size, all big-endian.
const ADVERT: usize = 16;
/// How often a waiting server looks whether the client is still there.
const LOOK: Duration = Duration::from_millis(100);
/// How long a peer may be silent in the middle of a ping.
const SILENCE: Duration = Duration::from_secs(30);

fn queues<'a, 'd, P: Platform>() -> QpInit<'a, 'd, P> {
    QpInit {
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: ADVERT as u32,
        },
        ..QpInit::default()
    }
}

/// One end of a connection: the id and its buffers.
struct End<'d, P: Platform> {
    id: CmId,
    /// Advertisements arrive here.
    inbox: Buffer<'d, P>,
}

impl<'d, P: Platform> End<'d, P> {
    fn new<R: Resolver>(cm: &mut RdmaCm<'_, 'd, P, R>, id: CmId) -> Result<Self> {
        let inbox = cm.reg_msgs(id, ADVERT)?;
        let end = Self { id, inbox };
        end.expect_message(cm)?;
        Ok(end)
    }

    fn expect_message<R: Resolver>(&self, cm: &mut RdmaCm<'_, 'd, P, R>) -> Result<()> {
        Ok(cm.post_recv(self.id, 0, &self.inbox, 0, ADVERT)?)
    }

    fn sent<R: Resolver>(&self, cm: &mut RdmaCm<'_, 'd, P, R>, what: &str) -> Result<()> {
        let deadline = cm.now() + SILENCE;
        check(&cm.get_send_comp_until(self.id, deadline)?, what)
    }

    /// Waits for the other end's message and makes room for the next one. `None`: the other end has disconnected.
    fn message<R: Resolver>(
        &self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        patience: Duration,
    ) -> Result<Option<Advert>> {
        let end = cm.now().saturating_add(patience);
        let wc = loop {
            let deadline = end.min(cm.now() + LOOK);
            match cm.get_recv_comp_until(self.id, deadline) {
                Ok(wc) => break wc,
                Err(RdmaError::TimedOut) if cm.state(self.id)? == IdState::Disconnect => {
                    return Ok(None);
                }
                Err(RdmaError::TimedOut) if cm.now() < end => {}
                Err(error) => return Err(error.into()),
            }
        };
        check(&wc, "receive")?;
        if wc.byte_len as usize != ADVERT {
            return Err(
                format!("a message of {} bytes where {ADVERT} are due", wc.byte_len).into(),
            );
        }
        let mut bytes = [0; ADVERT];
        self.inbox.copy_out(0, &mut bytes)?;
        self.expect_message(cm)?;
        Ok(Some(Advert::from_bytes(&bytes)))
    }

    fn tell<R: Resolver>(&self, cm: &mut RdmaCm<'_, 'd, P, R>, advert: &Advert) -> Result<()> {
        cm.post_send_inline(self.id, 0, &advert.to_bytes(), SendFlags::SIGNALED)?;
        self.sent(cm, "SEND")
    }
}

fn check(wc: &Wc, what: &str) -> Result<()> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(format!(
        "{what} failed: {} (vendor error {:#x})",
        wc.status, wc.vendor_err
    )
    .into())
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

/// Listens, serves one client until it disconnects, and cleans up. `listening` is called once clients may come.
pub(crate) fn serve<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    size: u32,
    listening: impl FnOnce(),
    mut ping: impl FnMut(u32),
) -> Result<Served> {
    let listener = cm.create_ep(address, None, Some(&mut queues()))?;
    cm.listen(listener, 1)?;
    listening();
    let id = cm.get_request(listener)?;
    let end = End::new(cm, id)?;
    let buffer = cm
        .pd(id)?
        .alloc_buffer(size as usize, Access::LOCAL_WRITE)?;
    cm.accept(id, None)?;

    let mut served = Served::default();
    let read_or_write = |asked: &Advert| match asked.size {
        wanted if wanted <= size => Ok(wanted as usize),
        wanted => Err(format!(
            "the client wants {wanted} bytes, there is room for {size} (-S)"
        )),
    };
    while let Some(source) = end.message(cm, Duration::MAX)? {
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
        let go_ahead = Advert::of(&buffer);
        end.tell(cm, &go_ahead)?;

        let Some(sink) = end.message(cm, SILENCE)? else {
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
    cm.destroy_ep(listener)?;
    Ok(served)
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

/// Connects, pings `count` times, disconnects and cleans up.
pub(crate) fn ping<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    size: u32,
    count: u32,
    validate: bool,
    mut connected: impl FnMut(&mut RdmaCm<'_, '_, P, R>, &Pinged),
    mut done: impl FnMut(u32, &[u8]),
) -> Result<Pinged> {
    let size = size as usize;
    let mut result = Pinged {
        times: Vec::with_capacity(count as usize),
        ..Pinged::default()
    };
    let commands = cm.device().commands_executed();
    let id = cm.create_ep(address, None, Some(&mut queues()))?;
    let registered = cm.device().commands_executed();
    let end = End::new(cm, id)?;
    let start = cm.reg_read(id, size)?;
    let sink = cm.reg_write(id, size)?;
    let registered = cm.device().commands_executed() - registered;

    result.connect_at = cm.now();
    cm.connect(id, None)?;
    result.connect = cm.now() - result.connect_at;
    result.commands = cm.device().commands_executed() - commands - registered;
    connected(cm, &result);

    let (mut sent, mut received) = (vec![0; size], vec![0; size]);
    let began = cm.now();
    for number in 0..count {
        let at = cm.now();
        fill(&mut sent, number);
        start.copy_in(0, &sent)?;
        end.tell(cm, &Advert::of(&start))?;
        end.message(cm, SILENCE)?.ok_or("the server disconnected")?;
        end.tell(cm, &Advert::of(&sink))?;
        end.message(cm, SILENCE)?.ok_or("the server disconnected")?;
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
