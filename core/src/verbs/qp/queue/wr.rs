//! Work requests as values: `struct ibv_send_wr`, `struct ibv_recv_wr`, and why posting fails.

use core::fmt;

use bitflags::bitflags;

use crate::types::ah::AddressHandle;
use crate::types::sge::Sge;
use bareverbs_firmware_cmds::numbers::{Qpn, RKey};

bitflags! {
    /// `enum ibv_send_flags`, with the values that they have there. (Inline data is not a flag here but a kind of
    /// [`SendData`].)
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Start only after all RDMA reads and atomics before it have completed.
        const FENCE = 1 << 0;
        /// Make a completion also on success.
        const SIGNALED = 1 << 1;
        /// Make the receiver's completion a solicited one.
        const SOLICITED = 1 << 2;
        /// Fill in the checksums of the IPv4 header and of TCP or UDP (raw packets; elsewhere without effect).
        const IP_CSUM = 1 << 4;
    }
}

impl SendFlags {
    /// The second word of the control segment with these flags, as it lies in memory.
    #[inline(always)]
    pub(crate) const fn control(self) -> u64 {
        Self::CONTROL[self.bits() as usize & 7]
    }

    /// That word for each combination of flags: to look it up costs less than to move the bits one by one.
    const CONTROL: [u64; 8] = {
        let mut all = [0; 8];
        let mut bits = 0;
        while bits < all.len() {
            // The byte of the control segment: fence 7:5, completion 3:2, solicited 1.
            let byte = (bits & 1) << 7 | (bits & 2) << 2 | (bits & 4) >> 1;
            all[bits] = ((byte as u64) << 32).to_be();
            bits += 1;
        }
        all
    };
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address inside the region that `rkey` names.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: RKey,
}

impl Remote {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 12;

    /// In bytes, to be sent to the peer that is to read or write there: address and key, big-endian.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [a, b, c, d, e, f, g, h] = self.addr.to_be_bytes();
        let [i, j, k, l] = self.rkey.0.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Reads what a peer has sent. Nothing in it is checked: that is for the peer's device to do when it is used.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: RKey(u32::from_be_bytes([i, j, k, l])),
        }
    }

    /// So many bytes further on in the same memory.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self {
            addr: self.addr.wrapping_add(offset),
            ..self
        }
    }
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The path.
    pub ah: &'a AddressHandle,
    /// The QP there.
    pub remote_qpn: Qpn,
    /// Its Q_Key. One with the high bit set stands for the sending QP's own.
    pub remote_qkey: u32,
}

/// Operation of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp<'a> {
    /// Send (RC, UC), or a frame (raw packets).
    Send,
    /// Send with immediate data in host order (RC, UC).
    SendImm(u32),
    /// Send, and invalidate a remote key of the receiver (RC).
    SendInv(RKey),
    /// Send a datagram (UD, GSI).
    SendTo(Destination<'a>),
    /// Send a datagram with immediate data (UD, GSI).
    SendToImm(Destination<'a>, u32),
    /// RDMA write (RC, UC).
    Write(Remote),
    /// RDMA write with immediate data (RC, UC).
    WriteImm(Remote, u32),
    /// RDMA read (RC).
    Read(Remote),
    /// Compare and swap 8 bytes (RC).
    CompareSwap {
        /// The 8 bytes that are compared, aligned.
        remote: Remote,
        /// The value to compare them with.
        compare: u64,
        /// The value to write if they are equal.
        swap: u64,
    },
    /// Fetch and add 8 bytes (RC).
    FetchAdd {
        /// The 8 bytes that are added to, aligned.
        remote: Remote,
        /// The value to add.
        add: u64,
    },
}

/// The data of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendData<'a> {
    /// Registered memory, gathered (or, for READ and atomics, scattered to).
    Sges(&'a [Sge]),
    /// These bytes, copied into the work queue: they need no registration and may be changed at once.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// The caller's identifier, opaque to the driver; the completion carries it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp<'a>,
    /// The flags.
    pub flags: SendFlags,
    /// The data.
    pub data: SendData<'a>,
}

/// A receive work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// The caller's identifier.
    pub wr_id: u64,
    /// Memory for the message. On UD and GSI the first 40 bytes are the GRH's.
    pub sges: &'a [Sge],
}

/// Text of the errors of devices without [atomics](crate::Capabilities::has_atomics).
pub(crate) const NO_ATOMICS: &str = "the device has no 8-byte atomics in the host's byte order";

/// Why a work request was not posted. It is returned in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// As many are outstanding as the queue holds; poll first.
    QueueFull {
        /// Work requests that the queue holds.
        limit: u32,
    },
    /// The QP's state does not take them (sends from RTS on, receives from INIT on), or it has no such queue.
    WrongState,
    /// Too many scatter/gather entries.
    TooManySges {
        /// Entries given.
        given: u32,
        /// Entries that the queue takes, of this operation.
        limit: u16,
    },
    /// Too much inline data.
    InlineTooLong {
        /// The number of bytes that were given.
        given: u32,
        /// Bytes that the queue takes.
        limit: u16,
    },
    /// An entry of 2 GiB or more.
    SgeTooLong {
        /// Its length.
        length: u32,
    },
    /// This transport has no such operation, or the operation takes no such data.
    Unsupported,
    /// The device has no atomics whose results are in the host's byte order
    /// ([`Capabilities::has_atomics`](crate::Capabilities::has_atomics)).
    NoAtomics,
    /// The device requires so many bytes of a frame's headers in the work request itself
    /// ([`Batch::send_packet_with`](crate::qp::send::Batch::send_packet_with)).
    HeadersNotInline {
        /// Bytes required.
        needed: u16,
    },
    /// The device does not fill in checksums.
    NoChecksums,
}

const _: () = assert!(size_of::<Result<(), PostError>>() == 8);

/// A length for an error.
pub(crate) fn given(length: usize) -> u32 {
    length.try_into().unwrap_or(u32::MAX)
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { limit } => write!(
                f,
                "the queue is full: {limit} work requests are outstanding"
            ),
            Self::WrongState => f.write_str("the QP's state does not take work requests here"),
            Self::TooManySges { given, limit } => {
                write!(f, "{given} entries where the queue takes {limit}")
            }
            Self::InlineTooLong { given, limit } => {
                write!(f, "{given} bytes inline where the queue takes {limit}")
            }
            Self::SgeTooLong { length } => {
                write!(f, "an entry of {length} bytes; below 2 GiB is possible")
            }
            Self::Unsupported => f.write_str("the transport has no such operation"),
            Self::NoAtomics => f.write_str(NO_ATOMICS),
            Self::HeadersNotInline { needed } => write!(
                f,
                "the device requires {needed} bytes of a frame's headers inline"
            ),
            Self::NoChecksums => f.write_str("the device does not fill in checksums"),
        }
    }
}

impl core::error::Error for PostError {}

/// A list was posted up to one that could not be: the `bad_wr` of `ibv_post_send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadWr {
    /// Index of the first one that was not posted.
    pub index: usize,
    /// The reason.
    pub error: PostError,
}

impl fmt::Display for BadWr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {}: {}", self.index, self.error)
    }
}

impl core::error::Error for BadWr {}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_firmware_cmds::word::Word;
    use bareverbs_firmware_cmds::wqe::{ControlFlags, completion, fence};

    #[test]
    fn control_byte() {
        for bits in 0..8 {
            let flags = SendFlags::from_bits_retain(bits);
            let mut word = ControlFlags(0);
            if flags.contains(SendFlags::FENCE) {
                word.set_fm_ce_se(fence::SMALL_AND_FENCE);
            }
            if flags.contains(SendFlags::SIGNALED) {
                word.set_fm_ce_se(word.fm_ce_se() | completion::ALWAYS);
            }
            word.set_solicited(flags.contains(SendFlags::SOLICITED));
            assert_eq!(flags.control(), word.to_memory(), "{flags:?}");
        }
        assert_eq!(
            SendFlags::all().control(),
            ControlFlags::new(0x8a, 0).to_memory()
        );
    }
}
