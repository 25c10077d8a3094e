//! Frames on a connection to a [virtual switch](super::vswitch): each with its length in front, in two bytes, big-endian.
//!
//! A connection begins with eight bytes from the client, which say what it wants, and eight bytes with the answer: see [`Wish`].
//! The first frame from the client is an empty one, or has the name by which others offer it [rings](super::neighbours), and is
//! answered by an empty one: from then on it is sent frames. So a process can have its unit number before it has a port.
//!
//! A switch tells its clients the names of others by notices, which are too short for frames.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::neighbours::{Name, StationAddress};
use super::queue::LONGEST;

/// So many bytes are written at a time.
pub(super) const BATCH: usize = 64 * 1024;
/// The size of a [`Reader`]'s buffer.
const BUFFER: usize = 256 * 1024;
/// The time that the answer to a wish may take, and a write to a switch that takes nothing: it waits for its ports itself.
const ANSWER: Duration = Duration::from_secs(10);
/// The first bytes of a wish and of an answer: a name, and the version.
const MAGIC: [u8; 4] = *b"bvx2";

/// The unit numbers of the models that a process connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It has numbers that the switch need not know.
    None,
    /// It is no port, but keeps the switch running as long as the connection lasts.
    Hold,
    /// These numbers and no others.
    Exactly {
        /// The first one.
        first: u8,
        /// The number of ports.
        count: u8,
    },
    /// These numbers, or others if they are taken or `first` is 0.
    Preferably {
        /// The first one.
        first: u8,
        /// The number of ports.
        count: u8,
    },
}

impl Wish {
    fn bytes(self) -> [u8; 8] {
        let (kind, first, count) = match self {
            Self::None => (0, 0, 0),
            Self::Hold => (1, 0, 0),
            Self::Exactly { first, count } => (2, first, count),
            Self::Preferably { first, count } => (3, first, count),
        };
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, kind, first, count, 0]
    }

    pub(super) fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, kind, first, count, 0] = bytes else {
            return None;
        };
        if [a, b, c, d] != MAGIC {
            return None;
        }
        match (kind, first, count) {
            (0, 0, 0) => Some(Self::None),
            (1, 0, 0) => Some(Self::Hold),
            (2, 1.., 1..) => Some(Self::Exactly { first, count }),
            (3, _, 1..) => Some(Self::Preferably { first, count }),
            _ => None,
        }
    }
}

/// The answer of a switch to a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The first number; 0 if none was wanted.
    Granted(u8),
    Taken,
    NotUnderstood,
}

impl Answer {
    pub(super) fn bytes(self) -> [u8; 8] {
        let (kind, first) = match self {
            Self::Granted(first) => (0, first),
            Self::Taken => (1, 0),
            Self::NotUnderstood => (2, 0),
        };
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, kind, first, 0, 0]
    }

    fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, kind, first, 0, 0] = bytes else {
            return None;
        };
        if [a, b, c, d] != MAGIC {
            return None;
        }
        match (kind, first) {
            (0, first) => Some(Self::Granted(first)),
            (1, 0) => Some(Self::Taken),
            (2, 0) => Some(Self::NotUnderstood),
            _ => None,
        }
    }
}

/// A connection to a switch.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    first: u8,
}

impl Connection {
    /// Connects to the switch at `path`.
    ///
    /// # Errors
    /// There is none, or the unit numbers are not to be had ([`ErrorKind::AddrInUse`]).
    pub fn open(path: &Path, wish: Wish) -> io::Result<Self> {
        let at = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("the switch {}: {error}", path.display()),
            )
        };
        let wrong = |kind, what: fmt::Arguments<'_>| at(io::Error::new(kind, what.to_string()));
        let mut stream = UnixStream::connect(path).map_err(at)?;
        stream.set_read_timeout(Some(ANSWER)).map_err(at)?;
        stream.set_write_timeout(Some(ANSWER)).map_err(at)?;
        stream.write_all(&wish.bytes()).map_err(at)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).map_err(at)?;
        let first = match (Answer::parse(answer), wish) {
            (Some(Answer::Granted(first)), _) => first,
            (Some(Answer::Taken), Wish::Exactly { first, .. }) => {
                let what = format_args!("another process has unit {first}");
                return Err(wrong(ErrorKind::AddrInUse, what));
            }
            (Some(Answer::Taken), _) => {
                return Err(wrong(
                    ErrorKind::AddrInUse,
                    format_args!("all units are taken"),
                ));
            }
            (Some(Answer::NotUnderstood) | None, _) => {
                let what = format_args!("it is no switch of this version");
                return Err(wrong(ErrorKind::InvalidData, what));
            }
        };
        stream.set_read_timeout(None).map_err(at)?;
        Ok(Self { stream, first })
    }

    /// Asks for frames from now on.
    ///
    /// # Errors
    /// The switch is gone.
    pub(super) fn begin(&self, name: Option<Name>) -> io::Result<()> {
        let mut batch = Vec::new();
        append(&mut batch, name.as_ref().map_or(&[], |name| &name[..]));
        (&self.stream).write_all(&batch)
    }

    /// The first unit number; 0 if none was wanted.
    #[must_use]
    pub fn first_unit(&self) -> u8 {
        self.first
    }

    /// The socket.
    #[must_use]
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

/// Returns `true` if a socket's timeout came to its end.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Appends a frame as it is on a connection. Longer frames than there are are left out.
pub(super) fn append(batch: &mut Vec<u8>, frame: &[u8]) {
    if let Ok(len) = u16::try_from(frame.len())
        && frame.len() <= LONGEST
    {
        batch.extend_from_slice(&len.to_be_bytes());
        batch.extend_from_slice(frame);
    }
}

/// The notice to a client whose frames go to an address: the name of the process that has it.
pub(super) fn notice(address: StationAddress, name: Name) -> [u8; 12] {
    let mut notice = [0; 12];
    notice[..6].copy_from_slice(&address);
    notice[6..].copy_from_slice(&name);
    notice
}

/// The address and the name in a frame, if it is a [notice].
pub(super) fn noticed(frame: &[u8]) -> Option<(StationAddress, Name)> {
    let notice: &[u8; 12] = frame.try_into().ok()?;
    let (address, name) = notice.split_first_chunk()?;
    Some((*address, *name.first_chunk()?))
}

/// Takes frames from a connection.
pub(super) struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
        }
    }

    /// The length of the first frame in the buffer, if all of it is there.
    fn whole(&self) -> io::Result<Option<usize>> {
        let Some((len, rest)) = self.buffer[self.start..self.end].split_first_chunk::<2>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes(*len));
        if len > LONGEST {
            let what = format!("a frame of {len} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        Ok((rest.len() >= len).then_some(len))
    }

    /// Returns `true` if [`next`](Self::next) does not wait.
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self.whole(), Ok(None))
    }

    /// The next frame.
    pub(super) fn next(&mut self) -> io::Result<&[u8]> {
        let len = loop {
            if let Some(len) = self.whole()? {
                break len;
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            // A frame fits, so that there is room.
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    let what = "the other end has closed the connection";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                }
                Ok(len) => self.end += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let begin = self.start + 2;
        self.start = begin + len;
        Ok(&self.buffer[begin..begin + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_and_answers_are_read_as_they_are_written() {
        for wish in [
            Wish::None,
            Wish::Hold,
            Wish::Exactly { first: 3, count: 1 },
            Wish::Preferably { first: 0, count: 2 },
        ] {
            assert_eq!(Wish::parse(wish.bytes()), Some(wish));
        }
        for answer in [Answer::Granted(7), Answer::Taken, Answer::NotUnderstood] {
            assert_eq!(Answer::parse(answer.bytes()), Some(answer));
        }
        for wrong in [
            *b"GET / HT",
            *b"bvx2\x04\0\0\0",
            *b"bvx2\x02\0\x01\0",
            *b"bvx2\x03\0\0\0",
            *b"bvx2\0\0\0\x01",
        ] {
            assert_eq!(Wish::parse(wrong), None);
        }
        assert_eq!(Answer::parse(*b"bvx2\x03\0\0\0"), None);
    }

    /// Gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let len = self.0.len().min(1);
            (&mut self.0).read_exact(&mut to[..len])?;
            Ok(len)
        }
    }

    #[test]
    fn frames_come_as_they_were_appended() {
        let frames: Vec<Vec<u8>> = (0..200usize).map(|n| vec![n as u8; n * 50]).collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            append(&mut bytes, frame);
        }
        append(&mut bytes, &vec![0; LONGEST + 1]);
        let mut quick = Reader::new(&bytes[..]);
        let mut slow = Reader::new(Slow(&bytes));
        for frame in &frames {
            assert_eq!(quick.next().unwrap(), frame);
            assert_eq!(slow.next().unwrap(), frame);
        }
        assert_eq!(quick.next().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        let len = (LONGEST as u16 + 1).to_be_bytes();
        let mut reader = Reader::new(&len[..]);
        assert_eq!(reader.next().unwrap_err().kind(), ErrorKind::InvalidData);
        let mut reader = Reader::new(&[0, 3, 1, 2][..]);
        assert_eq!(reader.next().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
