//! Capture files in the classic pcap format, for Wireshark and tshark: writer, link wrapper and reader.

pub mod infiniband;

use std::io::{self, Write};
use std::time::Duration;

use crate::link::Link;

const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_ERF: u32 = 197;
/// Endace's extensible record format: a header in front of each packet, of this length, with this type for InfiniBand, and the
/// flag that says that records have their own lengths.
const ERF_LEN: usize = 16;
const ERF_INFINIBAND: u8 = 21;
const ERF_VARYING: u8 = 4;
const SNAP_LEN: u32 = 0x4_0000;

/// The page on how to read these files, for programs that name it.
pub const PAGE: &str = "docs/captures.md";

/// Writes frames with time stamps in nanoseconds, each in one piece: what is cut off is cut between frames.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    record: Vec<u8>,
    link_type: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        Self::with_link_type(out, LINKTYPE_ETHERNET)
    }

    /// The same for packets that begin with InfiniBand's local route header ([`infiniband::packet`]). They are in ERF records:
    /// Wireshark does not know the link type that is InfiniBand's own.
    pub fn infiniband(out: W) -> io::Result<Writer<W>> {
        Self::with_link_type(out, LINKTYPE_ERF)
    }

    fn with_link_type(mut out: W, link_type: u32) -> io::Result<Writer<W>> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&MAGIC_NANOS.to_le_bytes());
        header[4..6].copy_from_slice(&2u16.to_le_bytes());
        header[6..8].copy_from_slice(&4u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAP_LEN.to_le_bytes());
        header[20..24].copy_from_slice(&link_type.to_le_bytes());
        out.write_all(&header)?;
        let record = Vec::new();
        Ok(Writer {
            out,
            record,
            link_type,
        })
    }

    /// Writes one frame.
    pub fn write(&mut self, frame: &[u8], now: Duration) -> io::Result<()> {
        let erf = match self.link_type {
            LINKTYPE_ERF => Some(erf(frame.len(), now)?),
            _ => None,
        };
        let before = erf.as_ref().map_or(0, |erf| erf.len());
        let kept = &frame[..frame.len().min(SNAP_LEN as usize - before)];
        let mut header = [0; 16];
        // The format ends in 2106.
        header[0..4].copy_from_slice(&(now.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&now.subsec_nanos().to_le_bytes());
        header[8..12].copy_from_slice(&((before + kept.len()) as u32).to_le_bytes());
        header[12..16].copy_from_slice(&((before + frame.len()) as u32).to_le_bytes());
        self.record.clear();
        self.record.extend_from_slice(&header);
        self.record.extend(erf.into_iter().flatten());
        self.record.extend_from_slice(kept);
        self.out.write_all(&self.record)
    }

    /// Flushes and gives the output back.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The header of a packet's ERF record. Its length has to fit in 16 bits.
fn erf(length: usize, now: Duration) -> io::Result<[u8; ERF_LEN]> {
    let wire = u16::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    let record = wire
        .checked_add(ERF_LEN as u16)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut header = [0; ERF_LEN];
    // Seconds, and a fraction of them in units of 2 to the power of -32.
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    header[..4].copy_from_slice(&(fraction as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(now.as_secs() as u32).to_le_bytes());
    header[8..10].copy_from_slice(&[ERF_INFINIBAND, ERF_VARYING]);
    header[10..12].copy_from_slice(&record.to_be_bytes());
    header[14..16].copy_from_slice(&wire.to_be_bytes());
    Ok(header)
}

/// A link whose frames are captured as they are sent. Outside of a fault injector it shows what was sent, inside what
/// arrives.
#[derive(Debug)]
pub struct Capture<L, W> {
    inner: L,
    writer: Writer<W>,
    failed: Option<io::ErrorKind>,
}

impl<L: Link, W: Write + Send> Capture<L, W> {
    /// Wraps a link; `out` is buffered by the caller if it is slow.
    pub fn new(inner: L, out: W) -> io::Result<Capture<L, W>> {
        Ok(Capture {
            inner,
            writer: Writer::new(out)?,
            failed: None,
        })
    }

    /// Wraps a link of InfiniBand ports as [`new`](Self::new) does: the packets that their frames stand for are recorded.
    pub fn infiniband(inner: L, out: W) -> io::Result<Capture<L, W>> {
        Ok(Capture {
            inner,
            writer: Writer::infiniband(out)?,
            failed: None,
        })
    }

    fn record(&mut self, frame: &[u8], now: Duration) -> io::Result<()> {
        if self.writer.link_type == LINKTYPE_ETHERNET {
            return self.writer.write(frame, now);
        }
        match infiniband::packet(frame) {
            Some(packet) => self.writer.write(&packet, now),
            None => Ok(()),
        }
    }

    /// Ends the capture. Fails with the first error that a frame met, after which none was written any more.
    pub fn finish(self) -> io::Result<W> {
        match self.failed {
            Some(kind) => Err(kind.into()),
            None => self.writer.finish(),
        }
    }

    /// The link inside.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }
}

impl<L: Link, W: Write + Send> Link for Capture<L, W> {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        if self.failed.is_none()
            && let Err(error) = self.record(frame, now)
        {
            log::error!("capture stopped: {error}");
            self.failed = Some(error.kind());
        }
        self.inner.send(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.inner.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.inner.next_arrival()
    }
}

/// Why a capture cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No pcap file, or of the other byte order.
    #[error("no little-endian pcap file: magic {0:#010x}")]
    Magic(u32),
    /// Not Ethernet.
    #[error("link type {0} is not Ethernet")]
    LinkType(u32),
    /// Ends in the middle.
    #[error("file ends in the middle of a frame")]
    Truncated,
}

/// A frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time stamp.
    pub at: Duration,
    /// The bytes that were kept.
    pub data: &'a [u8],
}

/// Reads little-endian captures, with time stamps in micro- or nanoseconds.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    nanos_per_tick: u32,
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl<'a> Reader<'a> {
    /// Reads the file header.
    pub fn new(file: &'a [u8]) -> Result<Reader<'a>, ReadError> {
        let (header, rest) = file.split_at_checked(24).ok_or(ReadError::Truncated)?;
        let nanos_per_tick = match le32(header, 0) {
            MAGIC_MICROS => 1000,
            MAGIC_NANOS => 1,
            magic => return Err(ReadError::Magic(magic)),
        };
        match le32(header, 20) {
            LINKTYPE_ETHERNET => Ok(Reader {
                rest,
                nanos_per_tick,
            }),
            kind => Err(ReadError::LinkType(kind)),
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.rest.split_at_checked(16).and_then(|(header, rest)| {
            let (data, rest) = rest.split_at_checked(le32(header, 8) as usize)?;
            let nanos = u64::from(le32(header, 4)) * u64::from(self.nanos_per_tick);
            let at = Duration::from_secs(le32(header, 0).into()) + Duration::from_nanos(nanos);
            Some((Record { at, data }, rest))
        });
        match record {
            Some((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            None => {
                self.rest = &[];
                Some(Err(ReadError::Truncated))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Cable;

    #[test]
    fn what_is_captured_can_be_read() {
        let mut link = Capture::new(Cable::new(), Vec::new()).unwrap();
        let times = [Duration::ZERO, Duration::new(3, 123_456_789)];
        link.send(0, &[1; 60], times[0]);
        link.send(1, &[2; 1500], times[1]);
        let file = link.finish().unwrap();
        assert_eq!(file.len(), 24 + 16 + 60 + 16 + 1500);
        let records: Vec<_> = Reader::new(&file).unwrap().map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].at, records[0].data), (times[0], &[1; 60][..]));
        assert_eq!((records[1].at, records[1].data), (times[1], &[2; 1500][..]));
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = Writer::new(Vec::new()).unwrap().finish().unwrap();
        assert_eq!(Reader::new(&file[..23]).unwrap_err(), ReadError::Truncated);
        let mut wrong = file.clone();
        wrong[0] = 0;
        assert_eq!(
            Reader::new(&wrong).unwrap_err(),
            ReadError::Magic(0xa1b2_3c00)
        );
        let mut wrong = file.clone();
        wrong[20] = 9;
        assert_eq!(Reader::new(&wrong).unwrap_err(), ReadError::LinkType(9));
        let mut short = Writer::new(Vec::new()).unwrap();
        short.write(&[0; 60], Duration::ZERO).unwrap();
        let short = short.finish().unwrap();
        for len in 25..short.len() {
            let records: Vec<_> = Reader::new(&short[..len]).unwrap().collect();
            assert_eq!(records, [Err(ReadError::Truncated)]);
        }
    }

    #[test]
    fn a_full_disk_stops_the_capture_and_not_the_link() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(data.len())
                    .ok_or(io::ErrorKind::StorageFull)?;
                Ok(data.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut link = Capture::new(Cable::new(), Full(50)).unwrap();
        link.send(0, &[1; 60], Duration::ZERO);
        let mut frame = Vec::new();
        assert!(link.receive(1, Duration::ZERO, &mut frame));
        let Err(error) = link.finish() else {
            panic!("the error is gone");
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
