//! The messages of client and server: in the connection manager's private data, and in messages. All numbers are
//! big-endian; what came from the other end is only used after it was checked.

use bareverbs::verbs::{RKey, Remote};
use bareverbs_command_line::Named;

use super::test::{ATOMIC_SIZE, MAX_DEPTH, MAX_SIZE, Test};

/// Begins private data; the last byte is the version.
const MAGIC: [u8; 8] = *b"bvperf\0\x01";

/// Bytes of private data that are in use.
const HELLO: usize = 32;

/// With what a client asks for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hello {
    /// For messages: begins a session.
    Session {
        /// Bytes of the largest message there will be.
        largest: u32,
        /// The most of them in flight.
        deepest: u32,
        /// Where the server may write.
        memory: Remote,
    },
    /// For data: belongs to the session that was given this number.
    Data { session: u64 },
}

/// With what a server accepts a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) session: u64,
    /// Where the client may write.
    pub(crate) memory: Remote,
    /// `true` if the server's device has atomics. (In the bytes a bit says that it has none: a server that is older has not
    /// looked.)
    pub(crate) atomics: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn remote_at(bytes: &[u8], at: usize) -> Option<Remote> {
    Some(Remote {
        addr: u64_at(bytes, at)?,
        rkey: RKey(u32_at(bytes, at + 8)?),
    })
}

fn put_remote(bytes: &mut [u8; HELLO], at: usize, remote: Remote) {
    bytes[at..at + 8].copy_from_slice(&remote.addr.to_be_bytes());
    bytes[at + 8..at + 12].copy_from_slice(&remote.rkey.0.to_be_bytes());
}

fn ours(bytes: &[u8]) -> Result<(), &'static str> {
    match bytes.strip_prefix(&MAGIC[..7]) {
        Some([1, ..]) => Ok(()),
        Some(_) => Err("another version of perf"),
        None => Err("not perf"),
    }
}

/// The flag of a server without atomics.
const NO_ATOMICS: u32 = 1;

const CUT_OFF: &str = "private data that ends too early";

impl Hello {
    pub(crate) fn to_bytes(self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        match self {
            Self::Session {
                largest,
                deepest,
                memory,
            } => {
                // Neither is above what fits.
                bytes[8..12].copy_from_slice(&largest.to_be_bytes());
                bytes[12..16].copy_from_slice(&deepest.to_be_bytes());
                put_remote(&mut bytes, 16, memory);
            }
            Self::Data { session } => bytes[16..24].copy_from_slice(&session.to_be_bytes()),
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        ours(bytes)?;
        let largest = u32_at(bytes, 8).ok_or(CUT_OFF)?;
        let deepest = u32_at(bytes, 12).ok_or(CUT_OFF)?;
        let memory = remote_at(bytes, 16).ok_or(CUT_OFF)?;
        match (largest, deepest) {
            (0, 0) => Ok(Self::Data {
                session: memory.addr,
            }),
            (ATOMIC_SIZE..=MAX_SIZE, 1..=MAX_DEPTH) => Ok(Self::Session {
                largest,
                deepest,
                memory,
            }),
            _ => Err("larger messages, or more of them, than perf has"),
        }
    }
}

impl Welcome {
    pub(crate) fn to_bytes(self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        put_remote(&mut bytes, 16, self.memory);
        if !self.atomics {
            bytes[28..32].copy_from_slice(&NO_ATOMICS.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        ours(bytes)?;
        Ok(Self {
            session: u64_at(bytes, 8).ok_or(CUT_OFF)?,
            memory: remote_at(bytes, 16).ok_or(CUT_OFF)?,
            atomics: u32_at(bytes, 28).ok_or(CUT_OFF)? & NO_ATOMICS == 0,
        })
    }
}

/// Bytes of a message.
pub(crate) const MESSAGE: usize = 96;

/// The work of one end in a test, for the other to wait until all of it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Messages whose completion it has seen.
    pub(crate) sent: u64,
    /// Permissions to send that it has given (see `flow`).
    pub(crate) grants: u64,
    /// Nanoseconds that the messages took.
    pub(crate) nanos: u64,
    /// The most messages a second that it has seen.
    pub(crate) peak: u64,
}

/// The request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Make ready for a test, and take part in it.
    Start(Test),
    /// The test is over.
    Stop(Tally),
    /// There are no more.
    Bye,
    /// Something went wrong.
    Failed(String),
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Everything that a test takes is posted.
    Ready,
    /// It is over here as well.
    Done(Tally),
    /// Something went wrong.
    Failed(String),
}

/// The number of a variant on the wire.
fn index<T: Named>(value: T) -> u8 {
    let place = T::ALL.iter().position(|(_, other)| *other == value);
    // There are few.
    place.unwrap_or(0) as u8
}

fn variant<T: Named>(index: u8) -> Option<T> {
    T::ALL.get(usize::from(index)).map(|(_, value)| *value)
}

fn tally(kind: u8, tally: Tally) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[0] = kind;
    bytes[8..16].copy_from_slice(&tally.sent.to_be_bytes());
    bytes[16..24].copy_from_slice(&tally.grants.to_be_bytes());
    bytes[24..32].copy_from_slice(&tally.nanos.to_be_bytes());
    bytes[32..40].copy_from_slice(&tally.peak.to_be_bytes());
    bytes
}

fn tally_of(bytes: &[u8; MESSAGE]) -> Option<Tally> {
    Some(Tally {
        sent: u64_at(bytes, 8)?,
        grants: u64_at(bytes, 16)?,
        nanos: u64_at(bytes, 24)?,
        peak: u64_at(bytes, 32)?,
    })
}

/// Cuts off what does not fit; the end that failed prints all of it.
fn failure(why: &str) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[0] = 4;
    for (to, from) in bytes[1..].iter_mut().zip(why.bytes()) {
        *to = from;
    }
    bytes
}

/// It goes to a terminal.
fn failure_of(bytes: &[u8; MESSAGE]) -> String {
    let text = String::from_utf8_lossy(&bytes[1..]);
    text.trim_end_matches('\0').replace(char::is_control, "?")
}

impl Ask {
    pub(crate) fn to_bytes(&self) -> [u8; MESSAGE] {
        match self {
            Self::Start(test) => {
                let mut bytes = [0; MESSAGE];
                bytes[0] = 1;
                bytes[1] = index(test.verb);
                bytes[2] = index(test.kind);
                bytes[3] = test.both_ways.into();
                bytes[4..8].copy_from_slice(&test.size.to_be_bytes());
                bytes[8..12].copy_from_slice(&test.depth.to_be_bytes());
                bytes
            }
            Self::Stop(sums) => tally(2, *sums),
            Self::Bye => tally(3, Tally::default()),
            Self::Failed(why) => failure(why),
        }
    }

    /// `None`: invalid.
    pub(crate) fn from_bytes(bytes: &[u8; MESSAGE]) -> Option<Self> {
        match bytes[0] {
            1 => Some(Self::Start(Test {
                verb: variant(bytes[1])?,
                kind: variant(bytes[2])?,
                both_ways: bytes[3] != 0,
                size: u32_at(bytes, 4)?,
                depth: u32_at(bytes, 8)?,
            })),
            2 => tally_of(bytes).map(Self::Stop),
            3 => Some(Self::Bye),
            4 => Some(Self::Failed(failure_of(bytes))),
            _ => None,
        }
    }
}

impl Answer {
    pub(crate) fn to_bytes(&self) -> [u8; MESSAGE] {
        match self {
            Self::Ready => tally(1, Tally::default()),
            Self::Done(sums) => tally(2, *sums),
            Self::Failed(why) => failure(why),
        }
    }

    /// `None`: invalid.
    pub(crate) fn from_bytes(bytes: &[u8; MESSAGE]) -> Option<Self> {
        match bytes[0] {
            1 => Some(Self::Ready),
            2 => tally_of(bytes).map(Self::Done),
            4 => Some(Self::Failed(failure_of(bytes))),
            _ => None,
        }
    }
}
