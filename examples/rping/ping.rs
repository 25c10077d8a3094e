//! The ping-pong itself, message for message what rdma-core's `rping` does, so that either end can be that program. It
//! allocates nothing: the unikernel has this file too.
//!
//! The client advertises a buffer; the server reads it (RDMA READ) and says so; the client advertises a second one; the
//! server writes there what it read (RDMA WRITE) and says so; the client compares the two.

use core::fmt::{self, Write};
use core::time::Duration;

use bareverbs::cm::rdma::{
    AddrInfo, CmId, ConnParam, QpInit, RdmaCm, RdmaError, Resolver, SendFlags, SockAddr,
};
use bareverbs::verbs::mr::{Access, Buffer, OutOfRange, Sge};
use bareverbs::verbs::{Platform, RKey, Remote};

use crate::channel::{Channel, ChannelError, Received};

type Result<T> = core::result::Result<T, PingError>;

/// Why the pings ended too early.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PingError {
    /// The connection, or what was posted to it.
    Channel(ChannelError),
    /// The server refused.
    Refused(RdmaError, PrivateText),
    /// No way to this address was found, or no connection came about.
    Unreached {
        /// The step that failed.
        step: &'static str,
        address: Option<SockAddr>,
        error: RdmaError,
    },
    /// The other end has said nothing for so long.
    Silent(Duration),
    /// The other end disconnected in the middle of this ping.
    Disconnected(u32),
    /// The client requests more bytes than the buffer has.
    TooLong { wanted: u32, size: u32 },
    /// The bytes that came back are not those that were sent.
    Mismatch {
        ping: u32,
        at: usize,
        sent: u8,
        received: u8,
    },
}

/// The beginning of the peer's private data beside its reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrivateText {
    bytes: [u8; 48],
    len: u8,
}

impl PrivateText {
    fn new(data: &[u8]) -> Self {
        let mut bytes = [0; 48];
        // The field is padded with zeros, and the text's length is not transmitted.
        let len = data.iter().rposition(|&byte| byte != 0);
        let len = len.map_or(0, |at| at + 1).min(bytes.len());
        bytes[..len].copy_from_slice(&data[..len]);
        Self {
            bytes,
            len: len as u8,
        }
    }
}

impl fmt::Display for PingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => error.fmt(f),
            Self::Refused(error, PrivateText { len: 0, .. }) => error.fmt(f),
            Self::Refused(error, PrivateText { bytes, len }) => {
                write!(
                    f,
                    "{error}, and says \"{}\"",
                    bytes[..usize::from(*len)].escape_ascii()
                )
            }
            Self::Unreached {
                step,
                address: Some(address),
                error,
            } => write!(f, "{step} {address}: {error}"),
            Self::Unreached { step, error, .. } => write!(f, "{step}: {error}"),
            Self::Silent(timeout) => write!(f, "the other end has said nothing for {timeout:?}"),
            Self::Disconnected(ping) => write!(f, "the other end disconnected in ping {ping}"),
            Self::TooLong { wanted, size } => write!(
                f,
                "the client requests {wanted} bytes, the buffer has {size}"
            ),
            Self::Mismatch {
                ping,
                at,
                sent,
                received,
            } => write!(
                f,
                "ping {ping}: byte {at} came back as {received:#04x}, not {sent:#04x}"
            ),
        }
    }
}

impl core::error::Error for PingError {}

impl From<ChannelError> for PingError {
    #[cold]
    #[inline(never)]
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}

impl From<RdmaError> for PingError {
    #[cold]
    #[inline(never)]
    fn from(error: RdmaError) -> Self {
        Self::Channel(error.into())
    }
}

/// An advertisement: address, key, size, all big-endian.
pub(crate) const ADVERT: usize = 16;
/// The connection, for advertisements.
pub(crate) type End<'d, P> = Channel<'d, P, ADVERT>;

/// The other end's next advertisement. `None`: it has disconnected.
fn advert<'d, P: Platform, R: Resolver>(
    end: &End<'d, P>,
    cm: &mut RdmaCm<'_, 'd, P, R>,
    timeout: Duration,
) -> Result<Option<Advert>> {
    match end.message(cm, timeout)? {
        Received::Message(bytes) => Ok(Some(Advert::from_bytes(bytes))),
        Received::Disconnected => Ok(None),
        Received::Nothing => Err(PingError::Silent(timeout)),
    }
}

/// Memory that the client advertises.
#[derive(Clone, Copy)]
pub(crate) struct Advert {
    pub(crate) addr: u64,
    pub(crate) rkey: RKey,
    pub(crate) size: u32,
}

impl Advert {
    pub(crate) fn of<P: Platform>(buffer: &Buffer<'_, P>) -> Self {
        Self {
            addr: buffer.addr(),
            rkey: buffer.rkey(),
            size: buffer.len() as u32,
        }
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.addr,
            rkey: self.rkey,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; ADVERT] {
        let rkey = u128::from(self.rkey.0) << 32;
        (u128::from(self.addr) << 64 | rkey | u128::from(self.size)).to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; ADVERT]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Self {
            addr: (bits >> 64) as u64,
            rkey: RKey((bits >> 32) as u32),
            size: bits as u32,
        }
    }
}

/// Where messages lie, and how both ends reach them.
pub(crate) trait Memory<'d, P: Platform + 'd> {
    fn copy_in(&self, at: usize, bytes: &[u8]) -> core::result::Result<(), OutOfRange>;

    fn copy_out(&self, at: usize, bytes: &mut [u8]) -> core::result::Result<(), OutOfRange>;

    /// Makes the first bytes zeros.
    fn clear(&self, len: usize) -> core::result::Result<(), OutOfRange>;

    /// The first bytes, for a work request of this end.
    fn piece(&self, len: usize) -> core::result::Result<Sge, OutOfRange>;

    /// Opens it to the other end, over a connection that is established.
    fn open<R: Resolver>(
        &mut self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        end: &End<'d, P>,
    ) -> Result<Advert>;

    /// Closes it, when the other end has used it.
    fn close<R: Resolver>(&mut self, cm: &mut RdmaCm<'_, 'd, P, R>, end: &End<'d, P>)
    -> Result<()>;
}

/// A region is open as long as it is registered.
impl<'d, P: Platform + 'd> Memory<'d, P> for Buffer<'d, P> {
    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) -> core::result::Result<(), OutOfRange> {
        Buffer::copy_in(self, at, bytes)
    }

    #[inline]
    fn copy_out(&self, at: usize, bytes: &mut [u8]) -> core::result::Result<(), OutOfRange> {
        Buffer::copy_out(self, at, bytes)
    }

    #[inline]
    fn clear(&self, len: usize) -> core::result::Result<(), OutOfRange> {
        self.fill(0, len, 0)
    }

    #[inline]
    fn piece(&self, len: usize) -> core::result::Result<Sge, OutOfRange> {
        self.slice(..len)
    }

    #[inline]
    fn open<R: Resolver>(
        &mut self,
        _: &mut RdmaCm<'_, 'd, P, R>,
        _: &End<'d, P>,
    ) -> Result<Advert> {
        Ok(Advert::of(self))
    }

    #[inline]
    fn close<R: Resolver>(&mut self, _: &mut RdmaCm<'_, 'd, P, R>, _: &End<'d, P>) -> Result<()> {
        Ok(())
    }
}

/// Makes memory for messages.
pub(crate) trait Supply<'d, P: Platform + 'd> {
    type Memory: Memory<'d, P>;

    /// The capabilities of the connection's QP.
    #[inline]
    fn queues<'a>(&self) -> QpInit<'a, 'd, P>
    where
        'd: 'a,
    {
        End::<P>::queues()
    }

    /// Makes memory of so many bytes, in which the other end may do this.
    fn make<R: Resolver>(
        &mut self,
        cm: &RdmaCm<'_, 'd, P, R>,
        id: CmId,
        len: usize,
        access: Access,
    ) -> Result<Self::Memory>;
}

/// Registered memory, as rdma-core's `rping` has it.
#[derive(Debug)]
pub(crate) struct Regions;

impl<'d, P: Platform + 'd> Supply<'d, P> for Regions {
    type Memory = Buffer<'d, P>;

    #[inline]
    fn make<R: Resolver>(
        &mut self,
        cm: &RdmaCm<'_, 'd, P, R>,
        id: CmId,
        len: usize,
        access: Access,
    ) -> Result<Self::Memory> {
        let pd = cm.pd(id)?;
        let buffer = pd.alloc_buffer(len, Access::LOCAL_WRITE | access);
        Ok(buffer.map_err(RdmaError::from)?)
    }
}

/// Whom a server waits for, and what it has for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clients<'a> {
    /// So many, one after the other; any number without it.
    pub(crate) times: Option<u32>,
    /// They are rejected, with this text.
    pub(crate) reject: Option<&'a [u8]>,
    /// Bytes of a message at most.
    pub(crate) size: u32,
    /// The longest silences: where clients have to send, and between pings.
    pub(crate) silence: [Duration; 2],
}

/// The progress of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Clients may come.
    Listening,
    /// An RDMA READ was done.
    Read,
    /// This ping was served, from 1.
    Served(u32),
    /// A client was not served to its end.
    Failed(PingError),
}

/// Listens, serves one client after the other until it disconnects, and cleans up. How many pings were served.
///
/// A client's failure is reported ([`Step::Failed`]), and the next one served; the last such error is that of the call,
/// once all clients were there.
#[inline]
pub(crate) fn serve<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    clients: Clients<'_>,
    step: impl FnMut(Step),
) -> Result<u32> {
    serve_from(cm, address, clients, Regions, step)
}

/// The same with memory of this kind.
pub(crate) fn serve_from<'d, P: Platform + 'd, R: Resolver>(
    cm: &mut RdmaCm<'_, 'd, P, R>,
    address: &AddrInfo,
    clients: Clients<'_>,
    mut supply: impl Supply<'d, P>,
    mut step: impl FnMut(Step),
) -> Result<u32> {
    let listener = cm.create_ep(address, None, Some(&mut supply.queues()))?;
    cm.listen(listener, 16)?;
    step(Step::Listening);
    let (mut pings, mut served, mut failed) = (0, 0, None);
    while clients.times.is_none_or(|times| served < times) {
        let done = match cm.get_request(listener) {
            Ok(id) => {
                let done = match clients.reject {
                    Some(why) => cm.reject(id, why).map_err(PingError::from),
                    None => serve_one(cm, id, &clients, &mut supply, &mut pings, &mut step),
                };
                cm.destroy_ep(id)?;
                done
            }
            // The client called it off before it was asked for.
            Err(error @ RdmaError::Event { .. }) => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = done {
            step(Step::Failed(error));
            failed = Some(error);
        }
        served = served.wrapping_add(1);
    }
    cm.destroy_ep(listener)?;
    failed.map_or(Ok(pings), Err)
}

fn serve_one<'d, P: Platform + 'd, R: Resolver>(
    cm: &mut RdmaCm<'_, 'd, P, R>,
    id: CmId,
    clients: &Clients<'_>,
    supply: &mut impl Supply<'d, P>,
    pings: &mut u32,
    step: &mut impl FnMut(Step),
) -> Result<()> {
    let end = End::new(cm, id, clients.silence[0])?;
    let mut buffer = supply.make(cm, id, clients.size as usize, Access::empty())?;
    cm.accept(id, None)?;
    let done = answer(cm, &end, &mut buffer, clients, pings, step);
    // Nothing may be under way to the memory when it goes.
    let ended = cm.disconnect(id);
    done?;
    Ok(ended?)
}

/// Serves the pings of a client that is connected, until it disconnects.
fn answer<'d, P: Platform + 'd, R: Resolver>(
    cm: &mut RdmaCm<'_, 'd, P, R>,
    end: &End<'d, P>,
    buffer: &mut impl Memory<'d, P>,
    clients: &Clients<'_>,
    pings: &mut u32,
    step: &mut impl FnMut(Step),
) -> Result<()> {
    let [silence, between] = clients.silence;
    let (id, size) = (end.id, clients.size);
    let len = |asked: &Advert| match asked.size {
        wanted if wanted <= size => Ok(wanted as usize),
        wanted => Err(PingError::TooLong { wanted, size }),
    };
    let go_ahead = buffer.open(cm, end)?.to_bytes();
    let piece = |wanted: usize| buffer.piece(wanted).map_err(RdmaError::from);
    while let Some(source) = advert(end, cm, between)? {
        let wanted = len(&source)?;
        let flags = SendFlags::SIGNALED;
        let there = source.remote();
        cm.post_read(id, 0, piece(wanted)?, flags, there)?;
        end.sent(cm, "RDMA READ")?;
        step(Step::Read);
        end.send(cm, &go_ahead)?;

        let Some(sink) = advert(end, cm, silence)? else {
            break;
        };
        let wanted = len(&sink)?;
        cm.post_write(id, 0, piece(wanted)?, flags, sink.remote())?;
        end.sent(cm, "RDMA WRITE")?;
        end.send(cm, &go_ahead)?;
        *pings = pings.wrapping_add(1);
        step(Step::Served(*pings));
    }
    Ok(())
}

/// The work that a client did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pinged {
    /// Pings that came back.
    pub(crate) pings: u32,
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

/// The work of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Pings.
    pub(crate) count: u32,
    /// Compare what comes back.
    pub(crate) validate: bool,
    /// The private data of the connection request.
    pub(crate) private_data: &'a [u8],
    /// The longest silence of a server that has to send.
    pub(crate) silence: Duration,
}

/// Connects, pings, disconnects and cleans up. `done` is called after each ping, with what was sent and the time that it
/// took to come back.
#[inline]
pub(crate) fn ping<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    address: &AddrInfo,
    wanted: Wanted<'_>,
    connected: impl FnMut(&mut RdmaCm<'_, '_, P, R>, &Pinged),
    done: impl FnMut(&Message, Duration),
) -> Result<Pinged> {
    ping_from(cm, address, wanted, Regions, connected, done)
}

/// The same with memory of this kind.
pub(crate) fn ping_from<'d, P: Platform + 'd, R: Resolver>(
    cm: &mut RdmaCm<'_, 'd, P, R>,
    address: &AddrInfo,
    wanted: Wanted<'_>,
    mut supply: impl Supply<'d, P>,
    mut connected: impl FnMut(&mut RdmaCm<'_, '_, P, R>, &Pinged),
    mut done: impl FnMut(&Message, Duration),
) -> Result<Pinged> {
    let Wanted { size, silence, .. } = wanted;
    let param = ConnParam {
        private_data: wanted.private_data,
        ..ConnParam::default()
    };
    let mut result = Pinged::default();
    let commands = cm.device().commands_executed();
    let unreached = |step| {
        move |error| PingError::Unreached {
            step,
            address: address.dst_addr,
            error,
        }
    };
    let id = cm
        .create_ep(address, None, Some(&mut supply.queues()))
        .map_err(unreached("resolving"))?;
    let registered = cm.device().commands_executed();
    let end = End::new(cm, id, silence)?;
    let mut start = supply.make(cm, id, size, Access::REMOTE_READ)?;
    let mut sink = supply.make(cm, id, size, Access::REMOTE_WRITE)?;
    let registered = cm.device().commands_executed() - registered;
    result.connect_at = cm.now();
    cm.connect(id, Some(&param)).map_err(|error| match error {
        RdmaError::Rejected(_) => refusal(cm, id, error),
        error => unreached("connecting to")(error),
    })?;
    result.connect = cm.now() - result.connect_at;
    result.commands = cm.device().commands_executed() - commands - registered;
    connected(cm, &result);

    let began = cm.now();
    for number in 0..wanted.count {
        let message = Message::new(number, size);
        let at = cm.now();
        message.write(&start)?;
        for buffer in [&mut start, &mut sink] {
            let open = buffer.open(cm, &end)?;
            end.send(cm, &open.to_bytes())?;
            let answer = advert(&end, cm, silence)?;
            answer.ok_or(PingError::Disconnected(number))?;
            buffer.close(cm, &end)?;
        }
        let took = cm.now() - at;
        if wanted.validate {
            message.compare(&sink)?;
            result.verified += size as u64;
            // What is there now must not pass for the answer to the next ping.
            sink.clear(size).map_err(RdmaError::from)?;
        }
        result.pings += 1;
        done(&message, took);
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

/// Why there is no connection, with the peer's private data beside its reason.
fn refusal<P: Platform, R: Resolver>(
    cm: &RdmaCm<'_, '_, P, R>,
    id: CmId,
    error: RdmaError,
) -> PingError {
    match (error, cm.event(id)) {
        (RdmaError::Rejected(_), Ok(Some(event))) => {
            PingError::Refused(error, PrivateText::new(event.private_data()))
        }
        _ => error.into(),
    }
}

/// Bytes of a message that are made or compared at a time.
const PIECE: usize = 256;

/// The message of a ping: a heading with its number, then characters from one that moves on with every ping, and a zero.
pub(crate) struct Message {
    /// The number of the ping, from 0.
    pub(crate) number: u32,
    heading: Heading,
    len: usize,
}

impl Message {
    fn new(number: u32, len: usize) -> Self {
        let mut heading = Heading::default();
        // It fits: 12 characters, at most 10 digits.
        let _ = write!(heading, "rdma-ping-{number}: ");
        Self {
            number,
            heading,
            len,
        }
    }

    /// The byte at an index.
    pub(crate) fn at(&self, index: usize) -> u8 {
        self.piece(index)[0]
    }

    /// The bytes from an index on; what is behind the message is not to be used.
    fn piece(&self, at: usize) -> [u8; PIECE] {
        let (first, last) = (b'A', b'z');
        let count = u64::from(last - first) + 1;
        let heading = self.heading.bytes();
        let behind = at.saturating_sub(heading.len()) as u64;
        let mut character = first + ((u64::from(self.number) + behind) % count) as u8;
        let mut bytes = [0; PIECE];
        for (index, byte) in (at..).zip(&mut bytes) {
            *byte = match heading.get(index) {
                Some(&byte) => byte,
                None => character,
            };
            character = match character {
                same if index < heading.len() => same,
                end if end == last => first,
                other => other + 1,
            };
        }
        let end = self.len.checked_sub(at + 1);
        if let Some(end) = end.and_then(|end| bytes.get_mut(end)) {
            *end = 0;
        }
        bytes
    }

    fn write<'d, P: Platform + 'd>(&self, to: &impl Memory<'d, P>) -> Result<()> {
        for at in (0..self.len).step_by(PIECE) {
            let fits = PIECE.min(self.len - at);
            let piece = &self.piece(at)[..fits];
            to.copy_in(at, piece).map_err(RdmaError::from)?;
        }
        Ok(())
    }

    /// That it is what came back.
    fn compare<'d, P: Platform + 'd>(&self, with: &impl Memory<'d, P>) -> Result<()> {
        let mut received = [0; PIECE];
        for at in (0..self.len).step_by(PIECE) {
            let fits = PIECE.min(self.len - at);
            let piece = &mut received[..fits];
            with.copy_out(at, piece).map_err(RdmaError::from)?;
            let mut pairs = self.piece(at).into_iter().zip(piece);
            if let Some(offset) = pairs.position(|(sent, received)| sent != *received) {
                return Err(PingError::Mismatch {
                    ping: self.number,
                    at: at + offset,
                    sent: self.at(at + offset),
                    received: received[offset],
                });
            }
        }
        Ok(())
    }
}

/// A short text.
#[derive(Default)]
struct Heading {
    bytes: [u8; 24],
    len: usize,
}

impl Heading {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Write for Heading {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.len..self.len + text.len());
        free.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
#[path = "ping_tests.rs"]
mod tests;
