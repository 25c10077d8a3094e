//! vfio-user messages byte by byte, right and wrong ones.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::support::LONG;

pub(crate) const VERSION: u16 = 1;
pub(crate) const DMA_MAP: u16 = 2;
pub(crate) const DMA_UNMAP: u16 = 3;
pub(crate) const GET_INFO: u16 = 4;
pub(crate) const GET_REGION_INFO: u16 = 5;
pub(crate) const GET_IRQ_INFO: u16 = 7;
pub(crate) const SET_IRQS: u16 = 8;
pub(crate) const REGION_READ: u16 = 9;
pub(crate) const REGION_WRITE: u16 = 10;
pub(crate) const RESET: u16 = 13;
/// Flags: no reply is wanted; a reply; an error.
pub(crate) const NO_REPLY: u32 = 1 << 4;
const REPLY: u32 = 1;
const ERROR: u32 = 1 << 5;

/// A message of 32-bit words behind the header.
pub(crate) fn words(command: u16, flags: u32, words: &[u32]) -> Vec<u8> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    message(command, flags, 16 + body.len() as u32, &body)
}

/// A message that says of itself that it is `size` bytes long.
pub(crate) fn message(command: u16, flags: u32, size: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&0x1234u16.to_le_bytes());
    bytes.extend_from_slice(&command.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The two halves of a number, as words.
pub(crate) fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// A DMA_MAP message; flags 3 are read and write.
pub(crate) fn dma_map(offset: u64, address: u64, size: u64) -> Vec<u8> {
    let [o, oh] = halves(offset);
    let [a, ah] = halves(address);
    let [s, sh] = halves(size);
    words(DMA_MAP, 0, &[32, 3, o, oh, a, ah, s, sh])
}

/// A DMA_UNMAP message.
pub(crate) fn dma_unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    let [a, ah] = halves(address);
    let [s, sh] = halves(size);
    words(DMA_UNMAP, 0, &[24, flags, a, ah, s, sh])
}

/// A region access without data.
pub(crate) fn access(command: u16, offset: u64, region: u32, count: u32) -> Vec<u8> {
    let [o, oh] = halves(offset);
    words(command, 0, &[o, oh, region, count])
}

/// A connection.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a server");
        stream.set_read_timeout(Some(LONG)).expect("a time limit");
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.write_all(bytes).expect("the server reads");
        self
    }

    pub(crate) fn send_with(&mut self, bytes: &[u8], descriptors: &[RawFd]) -> &mut Self {
        let sent = self.0.send_with_fds(&[bytes], descriptors);
        assert_eq!(sent.expect("the server reads"), bytes.len());
        self
    }

    /// A reply's body; `None` if it is an error.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).expect("a reply");
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(8) & 0xf, REPLY, "{header:02x?}");
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).expect("all of the reply");
        (word(8) & ERROR == 0).then_some(body)
    }

    /// Sends nothing more, and takes what comes until the server hangs up.
    pub(crate) fn drain(mut self) -> io::Result<Vec<u8>> {
        self.0.shutdown(std::net::Shutdown::Write)?;
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest)?;
        Ok(rest)
    }
}
