//! The formats of stream rsockets on the wire, which are those of librdmacm: either end may be Debian's.
//!
//! # Private data of REQ and REP (40 bytes, in network order)
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | bit 0: this end is big endian; bit 1: this end can have tables of mapped buffers |
//! | 2–3 | how many data messages may be sent before the first update of credits |
//! | 4–6 | zero |
//! | 7 | entries of the table of mapped buffers; above 128, bits 6:0 count 256 entries each |
//! | 8–23 | list of targets: address, key, number of entries |
//! | 24–39 | the first target: address, key, length in bytes |
//!
//! # Messages
//!
//! All are RDMA WRITEs with immediate data. Of the 32 bits, 31:29 are the type and 28:0 its value:
//!
//! | type | message | value | written memory |
//! |---|---|---|---|
//! | 0 | data | how many bytes | these bytes, in the current target |
//! | 4 | credits | number up to which data messages may be sent, in bits 15:0 | nothing, or an entry of the list of targets |
//! | 6 | mapping | index | an entry of the table of mapped buffers, which lies behind the list of targets |
//! | 7 | control | 0: disconnect, 2: no more data | nothing |
//!
//! The list of targets has two entries, which are written in turns. An entry is 16 bytes: address (8), key (4), length (4), in
//! the byte order of the end that reads it. A target is filled before the next one is used. An entry of the table of mapped
//! buffers is 24 bytes: offset (8), and address, key and length as before.
//!
//! Data and mappings count against the credits, other messages do not: they rely on the transport, which repeats what finds no
//! receive posted. A WRITE of no bytes without immediate data shows that the other end is there.

/// The only version.
const VERSION: u8 = 1;
const BIG_ENDIAN: u8 = 1 << 0;
const HAS_MAPPINGS: u8 = 1 << 1;

/// Entries of the list of targets.
pub(super) const TARGETS: usize = 2;
/// Bytes of an entry of the list of targets.
pub(super) const TARGET_LEN: usize = 16;
/// Bytes of an entry of the table of mapped buffers.
pub(super) const MAPPING_LEN: usize = 24;
/// The most bytes of one data message, by the bits that say so.
const VALUE: u32 = (1 << 29) - 1;

/// Memory of one end that the other end writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Target {
    /// Writes it in the form that the other end reads.
    pub(super) fn to_bytes(self, swap: bool) -> [u8; TARGET_LEN] {
        let mut bytes = [0; TARGET_LEN];
        let (addr, key, length) = match swap {
            false => (self.addr, self.key, self.length),
            true => (
                self.addr.swap_bytes(),
                self.key.swap_bytes(),
                self.length.swap_bytes(),
            ),
        };
        bytes[..8].copy_from_slice(&addr.to_ne_bytes());
        bytes[8..12].copy_from_slice(&key.to_ne_bytes());
        bytes[12..].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    /// Reads it in the form that the other end has written, which knows this end's byte order.
    pub(super) fn from_bytes(bytes: &[u8; TARGET_LEN]) -> Self {
        Self {
            addr: u64::from_ne_bytes(part(bytes, 0)),
            key: u32::from_ne_bytes(part(bytes, 8)),
            length: u32::from_ne_bytes(part(bytes, 12)),
        }
    }

    fn from_network(bytes: &[u8; TARGET_LEN]) -> Self {
        Self {
            addr: u64::from_be_bytes(part(bytes, 0)),
            key: u32::from_be_bytes(part(bytes, 8)),
            length: u32::from_be_bytes(part(bytes, 12)),
        }
    }

    fn to_network(self) -> [u8; TARGET_LEN] {
        self.to_bytes(cfg!(target_endian = "little"))
    }
}

/// A mapped buffer: what `riowrite` finds by its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) target: Target,
}

impl Mapping {
    /// Writes it in the form that the other end reads.
    pub(super) fn to_bytes(self, swap: bool) -> [u8; MAPPING_LEN] {
        let mut bytes = [0; MAPPING_LEN];
        let offset = if swap {
            self.offset.swap_bytes()
        } else {
            self.offset
        };
        bytes[..8].copy_from_slice(&offset.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.target.to_bytes(swap));
        bytes
    }

    /// Reads it in the form that the other end has written.
    pub(super) fn from_bytes(bytes: &[u8; MAPPING_LEN]) -> Self {
        Self {
            offset: u64::from_ne_bytes(part(bytes, 0)),
            target: Target::from_bytes(&part(bytes, 8)),
        }
    }

    /// Where in the buffer this offset is, and how many bytes are there from it on.
    pub(super) fn find(&self, offset: u64) -> Option<(u64, u32)> {
        let inside = offset.checked_sub(self.offset)?;
        let left = u64::from(self.target.length).checked_sub(inside)?;
        if left == 0 {
            return None;
        }
        Some((self.target.addr.checked_add(inside)?, left as u32))
    }
}

/// Some of the bytes.
fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&bytes[from..from + N]);
    found
}

/// The private data of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) credits: u16,
    /// `true` if numbers are to be swapped for the other end.
    pub(super) swap: bool,
    /// Entries of the table of mapped buffers.
    pub(super) mappings: u16,
    pub(super) targets: Target,
    pub(super) first: Target,
}

/// Bytes of the private data.
pub(super) const HELLO_LEN: usize = 40;

impl Hello {
    /// The private data of this end.
    pub(super) fn to_bytes(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        let big = cfg!(target_endian = "big") != self.swap;
        bytes[0] = VERSION;
        bytes[1] = HAS_MAPPINGS | if big { BIG_ENDIAN } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.mappings);
        bytes[8..24].copy_from_slice(&self.targets.to_network());
        bytes[24..].copy_from_slice(&self.first.to_network());
        bytes
    }

    /// The private data of the other end; `None` if it is no rsocket of this version, or has no list of targets.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HELLO_LEN)?;
        let flags = bytes[1];
        let hello = Self {
            credits: u16::from_be_bytes(part(bytes, 2)),
            swap: (flags & BIG_ENDIAN != 0) != cfg!(target_endian = "big"),
            mappings: if flags & HAS_MAPPINGS != 0 {
                from_scale(bytes[7])
            } else {
                0
            },
            targets: Target::from_network(&part(bytes, 8)),
            first: Target::from_network(&part(bytes, 24)),
        };
        (bytes[0] == VERSION && hello.targets.length != 0).then_some(hello)
    }

    /// Where entry `index` of the list of targets is.
    pub(super) fn target_at(&self, index: u32) -> u64 {
        let at = u64::from(index) * TARGET_LEN as u64;
        self.targets.addr.wrapping_add(at)
    }

    /// Where entry `index` of the table of mapped buffers is.
    pub(super) fn mapping_at(&self, index: u16) -> u64 {
        let at = u64::from(index) * MAPPING_LEN as u64;
        self.target_at(self.targets.length).wrapping_add(at)
    }
}

/// A number of entries as one byte, rounded down.
fn to_scale(entries: u16) -> u8 {
    match entries {
        0..=128 => entries as u8,
        _ => 0x80 | (entries >> 8) as u8,
    }
}

fn from_scale(byte: u8) -> u16 {
    match byte {
        0..=128 => byte.into(),
        _ => u16::from(byte & 0x7f) << 8,
    }
}

/// A number of entries as the other end will understand it.
pub(super) fn rounded(entries: u16) -> u16 {
    from_scale(to_scale(entries))
}

/// The meaning of the immediate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// So many bytes were written.
    Data(u32),
    /// Data messages may be sent up to this number; the list of targets may have changed.
    Credits(u16),
    /// This entry of the table of mapped buffers was written.
    Mapping(u16),
    /// The other end has closed.
    Disconnect,
    /// The other end sends no more data.
    Shutdown,
    /// Something of a later version, which wants nothing.
    Other(u32),
}

impl Message {
    pub(super) fn to_immediate(self) -> u32 {
        match self {
            Self::Data(bytes) => bytes & VALUE,
            Self::Credits(number) => 4 << 29 | u32::from(number),
            Self::Mapping(index) => 6 << 29 | u32::from(index),
            Self::Disconnect => 7 << 29,
            Self::Shutdown => 7 << 29 | 2,
            Self::Other(immediate) => immediate,
        }
    }

    pub(super) fn from_immediate(immediate: u32) -> Self {
        let value = immediate & VALUE;
        match (immediate >> 29, value) {
            (0, bytes) => Self::Data(bytes),
            (4, number) => Self::Credits(number as u16),
            (6, index) => Self::Mapping(index as u16),
            (7, 0) => Self::Disconnect,
            (7, 2) => Self::Shutdown,
            _ => Self::Other(immediate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        credits: 384,
        swap: false,
        mappings: 0,
        targets: Target {
            addr: 0x1122_3344_5566_7788,
            key: 0x99aa_bbcc,
            length: 2,
        },
        first: Target {
            addr: 0x7000,
            key: 5,
            length: 65536,
        },
    };

    #[test]
    fn private_data_lies_as_it_is_written_above() {
        let bytes = HELLO.to_bytes();
        let big = u8::from(cfg!(target_endian = "big"));
        assert_eq!(bytes[..8], [1, 2 | big, 1, 128, 0, 0, 0, 0]);
        let targets = [
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 2,
        ];
        assert_eq!(bytes[8..24], targets);
        assert_eq!(
            bytes[24..],
            [0, 0, 0, 0, 0, 0, 0x70, 0, 0, 0, 0, 5, 0, 1, 0, 0]
        );
        // As it comes: the field of the REQ, filled up with zeros.
        let mut field = [0; 56];
        field[..HELLO_LEN].copy_from_slice(&bytes);
        assert_eq!(Hello::from_bytes(&field), Some(HELLO));
    }

    #[test]
    fn other_private_data_is_none() {
        let good = HELLO.to_bytes();
        assert_eq!(Hello::from_bytes(&good[..39]), None);
        assert_eq!(Hello::from_bytes(&[]), None);
        assert_eq!(Hello::from_bytes(&[0; 56]), None);
        let mut version = good;
        version[0] = 2;
        assert_eq!(Hello::from_bytes(&version), None);
        let mut no_targets = good;
        no_targets[20..24].fill(0);
        assert_eq!(Hello::from_bytes(&no_targets), None);
    }

    #[test]
    fn the_byte_order_of_the_other_end_is_known() {
        let swapped = Hello {
            swap: true,
            ..HELLO
        };
        assert_eq!(Hello::from_bytes(&swapped.to_bytes()), Some(swapped));
        let (plain, swapped) = (HELLO.first.to_bytes(false), HELLO.first.to_bytes(true));
        assert_eq!(Target::from_bytes(&plain), HELLO.first);
        assert_eq!(
            plain[..8].iter().rev().collect::<Vec<_>>(),
            swapped[..8].iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn numbers_of_mappings_are_rounded() {
        for (asked, got) in [
            (0, 0),
            (1, 1),
            (128, 128),
            (255, 128),
            (256, 256),
            (1000, 768),
        ] {
            assert_eq!(rounded(asked), got, "{asked}");
        }
        assert_eq!(from_scale(0xff), 0x7f00);
    }

    #[test]
    fn messages_come_back_from_immediate_data() {
        for (message, immediate) in [
            (Message::Data(65536), 65536),
            (Message::Credits(0xffff), 0x8000_ffff),
            (Message::Mapping(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::Shutdown, 0xe000_0002),
            (Message::Other(0x4000_0001), 0x4000_0001),
        ] {
            assert_eq!(message.to_immediate(), immediate);
            assert_eq!(Message::from_immediate(immediate), message);
        }
        // The sum of two numbers is not cut to 16 bits by every sender.
        assert_eq!(Message::from_immediate(0x8001_0004), Message::Credits(4));
    }

    #[test]
    fn offsets_are_found_in_mapped_buffers() {
        let mapping = Mapping {
            offset: 100,
            target: Target {
                addr: 0x1000,
                key: 1,
                length: 50,
            },
        };
        assert_eq!(mapping.find(99), None);
        assert_eq!(mapping.find(100), Some((0x1000, 50)));
        assert_eq!(mapping.find(149), Some((0x1031, 1)));
        assert_eq!(mapping.find(150), None);
        let bytes = mapping.to_bytes(false);
        assert_eq!(Mapping::from_bytes(&bytes), mapping);
        // No arithmetic of a hostile entry overflows.
        let hostile = Mapping {
            offset: 0,
            target: Target {
                addr: u64::MAX,
                ..mapping.target
            },
        };
        assert_eq!(hostile.find(0), Some((u64::MAX, 50)));
        assert_eq!(hostile.find(1), None);
    }
}
