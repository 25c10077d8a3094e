//! rdma-core's `rping`, either end, message for message.
//!
//! The client advertises a buffer; the server reads it (RDMA READ) and says so; the client advertises a second one; the
//! server writes there what it read (RDMA WRITE) and says so; the client compares the two.

use core::fmt::Write;
use core::net::IpAddr;
use core::time::Duration;

use bareverbs_cm::rdma::{AddrInfo, CmId, IdState, QpInit, RdmaError, SendFlags};
use bareverbs_core::mr::{Access, Buffer};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{RKey, Wc, WcStatus};

use kernel::clock;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::node::Cm;
use crate::options::Options;

/// An advertisement: address, key, size, all big-endian.
const ADVERT: usize = 16;
/// Bytes that are made or compared at a time.
const PIECE: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Advert {
    addr: u64,
    rkey: RKey,
    size: u32,
}

impl Advert {
    fn of(buffer: &Buffer<'_, Machine>) -> Self {
        Self {
            addr: buffer.addr(),
            rkey: buffer.rkey(),
            size: buffer.len() as u32,
        }
    }

    fn to_bytes(self) -> [u8; ADVERT] {
        let rkey = u128::from(self.rkey.0) << 32;
        (u128::from(self.addr) << 64 | rkey | u128::from(self.size)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; ADVERT]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Self {
            addr: (bits >> 64) as u64,
            rkey: RKey((bits >> 32) as u32),
            size: bits as u32,
        }
    }
}

/// One end of a connection. Each end waits for an answer before it sends again.
struct End<'d> {
    id: CmId,
    /// Advertisements arrive here.
    inbox: Buffer<'d, Machine>,
    /// How long the peer may be silent.
    silence: Duration,
}

impl<'d> End<'d> {
    /// What the connection's QP has to be able to do.
    fn queues<'a>() -> QpInit<'a, 'd, Machine> {
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

    /// Makes room for a message, which has to be done before there is a connection.
    fn new(cm: &mut Cm<'_, 'd>, id: CmId, silence: Duration) -> Result<Self, Failure> {
        let inbox = cm.reg_msgs(id, ADVERT)?;
        cm.post_recv(id, 0, &inbox, 0, ADVERT)?;
        Ok(Self { id, inbox, silence })
    }

    /// Waits for the completion of what was posted.
    fn posted(&self, cm: &mut Cm<'_, 'd>, what: &'static str) -> Result<(), Failure> {
        let deadline = cm.now() + self.silence;
        check(&cm.get_send_comp_until(self.id, deadline)?, what)
    }

    fn tell(&self, cm: &mut Cm<'_, 'd>, message: Advert) -> Result<(), Failure> {
        cm.post_send_inline(self.id, 0, &message.to_bytes(), SendFlags::SIGNALED)?;
        self.posted(cm, "SEND")
    }

    /// The other end's next advertisement. `None`: it has disconnected.
    fn hear(&self, cm: &mut Cm<'_, 'd>) -> Result<Option<Advert>, Failure> {
        let end = cm.now() + self.silence;
        let wc = loop {
            if let Some(wc) = cm.try_get_recv_comp(self.id)? {
                break wc;
            }
            if cm.state(self.id)? == IdState::Disconnect {
                return Ok(None);
            }
            if cm.now() >= end {
                return Err(Failure::Silent(self.silence));
            }
            // For either.
            cm.wait(end)?;
        };
        // What was posted comes back when the other end disconnects.
        if wc.status == WcStatus::WrFlushErr && cm.state(self.id)? == IdState::Disconnect {
            return Ok(None);
        }
        check(&wc, "receive")?;
        if wc.byte_len as usize != ADVERT {
            return Err(Failure::MessageLength(wc.byte_len));
        }
        let mut bytes = [0; ADVERT];
        self.inbox
            .copy_out(0, &mut bytes)
            .map_err(RdmaError::from)?;
        cm.post_recv(self.id, 0, &self.inbox, 0, ADVERT)?;
        Ok(Some(Advert::from_bytes(bytes)))
    }
}

fn check(wc: &Wc, what: &'static str) -> Result<(), Failure> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(Failure::Completion {
        what,
        status: wc.status,
        vendor: wc.vendor_err,
    })
}

/// Says when the first RDMA READ was done; a client knows with its first ping.
fn first_operation(ping: u32) {
    if ping == 0 {
        let micros = clock::since_boot().as_micros();
        log::info!("boot to first RDMA operation: {micros} us");
    }
}

/// Listens, and serves one client until it disconnects.
pub(crate) fn serve(cm: &mut Cm<'_, '_>, options: &Options) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, options.port).into()),
        ..AddrInfo::hints(true)
    };
    let listener = cm.create_ep(&address, None, Some(&mut End::queues()))?;
    cm.listen(listener, 4)?;
    log::info!("listening on {} port {}", options.address, options.port);
    let id = cm.get_request(listener)?;
    let pings = serve_one(cm, id, options)?;
    cm.destroy_ep(listener)?;
    log::info!("rping server: {pings} pings");
    Ok(())
}

fn serve_one(cm: &mut Cm<'_, '_>, id: CmId, options: &Options) -> Result<u32, Failure> {
    let end = End::new(cm, id, options.silence)?;
    let (size, access) = (options.size, Access::LOCAL_WRITE);
    let buffer = cm
        .pd(id)?
        .alloc_buffer(size as usize, access)
        .map_err(RdmaError::from)?;
    cm.accept(id, None)?;
    let len = |asked: Advert| match asked.size {
        wanted if wanted <= size => Ok(wanted as usize),
        wanted => Err(Failure::TooLong { wanted, room: size }),
    };
    let mut pings = 0;
    while let Some(source) = end.hear(cm)? {
        let wanted = len(source)?;
        let (flags, there) = (SendFlags::SIGNALED, source.addr);
        cm.post_read(id, 0, &buffer, 0, wanted, flags, there, source.rkey)?;
        end.posted(cm, "RDMA READ")?;
        first_operation(pings);
        end.tell(cm, Advert::of(&buffer))?;

        let sink = end.hear(cm)?.ok_or(Failure::Disconnected(pings))?;
        let wanted = len(sink)?;
        cm.post_write(id, 0, &buffer, 0, wanted, flags, sink.addr, sink.rkey)?;
        end.posted(cm, "RDMA WRITE")?;
        end.tell(cm, Advert::of(&buffer))?;
        pings += 1;
    }
    cm.disconnect(id)?;
    drop((buffer, end));
    cm.destroy_ep(id)?;
    Ok(pings)
}

/// Connects, pings, verifies every byte, and disconnects.
pub(crate) fn ping(cm: &mut Cm<'_, '_>, options: &Options, server: IpAddr) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, 0).into()),
        dst_addr: Some((server, options.port).into()),
        ..AddrInfo::hints(false)
    };
    let size = options.size as usize;
    let id = cm.create_ep(&address, None, Some(&mut End::queues()))?;
    let end = End::new(cm, id, options.silence)?;
    let start = cm.reg_read(id, size)?;
    let sink = cm.reg_write(id, size)?;
    let began = cm.now();
    cm.connect(id, None)
        .map_err(|error| refusal(cm, id, error))?;
    let connected = cm.now();
    log::info!(
        "connected to {server} port {} after {:?}",
        options.port,
        connected - began
    );
    for number in 0..options.count {
        fill(&start, number)?;
        for buffer in [&start, &sink] {
            end.tell(cm, Advert::of(buffer))?;
            end.hear(cm)?.ok_or(Failure::Disconnected(number))?;
        }
        first_operation(number);
        compare(&start, &sink, number)?;
        // What is there now must not pass for the answer to the next ping.
        sink.fill(0, size, 0).map_err(RdmaError::from)?;
    }
    let elapsed = cm.now() - connected;
    cm.disconnect(id)?;
    drop((start, sink, end));
    cm.destroy_ep(id)?;
    log::info!(
        "rping client: {} pings, {} bytes verified, {elapsed:?}",
        options.count,
        options.count as usize * size
    );
    Ok(())
}

/// Why there is no connection, with how much the other end told beside its reason.
fn refusal(cm: &Cm<'_, '_>, id: CmId, error: RdmaError) -> Failure {
    match (error, cm.event(id)) {
        (RdmaError::Rejected(_), Ok(Some(event))) => {
            let told = event.private_data();
            let len = told
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |at| at + 1);
            Failure::Refused(error, len)
        }
        _ => error.into(),
    }
}

/// Each byte of a message: a heading with the number of the ping, then characters from one that moves on with every ping,
/// and a zero.
struct Pattern {
    heading: Text,
    number: u32,
    len: usize,
}

impl Pattern {
    fn at(&self, index: usize) -> u8 {
        let (first, count) = (b'A', u32::from(b'z' - b'A') + 1);
        if index + 1 >= self.len {
            return 0;
        }
        match self.heading.bytes().get(index) {
            Some(&byte) => byte,
            None => {
                let behind = (index - self.heading.bytes().len()) as u32;
                first + ((self.number % count + behind % count) % count) as u8
            }
        }
    }
}

/// A short text.
#[derive(Default)]
struct Text {
    bytes: [u8; 24],
    len: usize,
}

impl Text {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len());
        room.ok_or(core::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Writes the message of a ping.
fn fill(buffer: &Buffer<'_, Machine>, number: u32) -> Result<(), Failure> {
    let mut heading = Text::default();
    // It fits: 12 characters, at most 10 digits.
    let _ = write!(heading, "rdma-ping-{number}: ");
    let len = buffer.len();
    let pattern = Pattern {
        heading,
        number,
        len,
    };
    for at in (0..len).step_by(PIECE) {
        let piece: [u8; PIECE] = core::array::from_fn(|index| pattern.at(at + index));
        let fits = PIECE.min(len - at);
        buffer
            .copy_in(at, &piece[..fits])
            .map_err(RdmaError::from)?;
    }
    Ok(())
}

/// That what came back is what was sent.
fn compare(
    start: &Buffer<'_, Machine>,
    sink: &Buffer<'_, Machine>,
    ping: u32,
) -> Result<(), Failure> {
    let len = start.len();
    let (mut sent, mut received) = ([0; PIECE], [0; PIECE]);
    for at in (0..len).step_by(PIECE) {
        let fits = PIECE.min(len - at);
        start
            .copy_out(at, &mut sent[..fits])
            .map_err(RdmaError::from)?;
        sink.copy_out(at, &mut received[..fits])
            .map_err(RdmaError::from)?;
        let mut pairs = sent.iter().zip(&received).take(fits);
        if let Some(offset) = pairs.position(|(sent, received)| sent != received) {
            return Err(Failure::Mismatch {
                ping,
                at: at + offset,
                sent: sent[offset],
                received: received[offset],
            });
        }
    }
    Ok(())
}
