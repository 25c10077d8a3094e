//! Headers as they lie in a frame, for both directions: structures of big-endian fields, and the places where they are read
//! and written one after the other.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A header that may lie anywhere.
pub(super) trait Header:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned
{
}

macro_rules! headers {
    ($($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(super) struct $name {
            $($(#[$note])* pub(super) $field: $kind,)*
        }

        impl Header for $name {}
    )*};
}

headers! {
    /// Ethernet (IEEE 802.3).
    Ethernet {
        destination: [u8; 6],
        source: [u8; 6],
        ethertype: U16,
    }
    /// The bytes of a VLAN tag behind its Ethertype (IEEE 802.1Q).
    Tag {
        control: U16,
        ethertype: U16,
    }
    /// IPv4 without options (RFC 791).
    Ipv4 {
        version_length: u8,
        type_of_service: u8,
        total: U16,
        ident: U16,
        fragment: U16,
        time_to_live: u8,
        protocol: u8,
        checksum: U16,
        source: [u8; 4],
        destination: [u8; 4],
    }
    /// IPv6 (RFC 8200), and the GRH (IBTA vol. 1, 8.3).
    Ipv6 {
        version_class_label: U32,
        payload: U16,
        next: u8,
        hop_limit: u8,
        source: [u8; 16],
        destination: [u8; 16],
    }
    /// UDP (RFC 768).
    Udp {
        source: U16,
        destination: U16,
        length: U16,
        checksum: U16,
    }
    /// Base transport header (IBTA vol. 1, 9.2).
    Bth {
        opcode: u8,
        /// Solicited event, migration, pad count, version.
        flags: u8,
        pkey: U16,
        /// Congestion bits, destination QPN.
        destination: U32,
        /// Acknowledge request, PSN.
        sequence: U32,
    }
    /// Datagram extended transport header (IBTA vol. 1, 9.3.2).
    Deth {
        qkey: U32,
        source_qpn: U32,
    }
    /// Header of dynamic connections, which two models have agreed upon.
    Dceth {
        key: U64,
        connection: U32,
        /// Its first PSN.
        first: U32,
        source_qpn: U32,
    }
    /// RDMA extended transport header (IBTA vol. 1, 9.3.3).
    Reth {
        addr: U64,
        rkey: U32,
        len: U32,
    }
    /// Atomic extended transport header (IBTA vol. 1, 9.3.4).
    AtomicEth {
        addr: U64,
        rkey: U32,
        swap_or_add: U64,
        compare: U64,
    }
    /// The headers of one word: AETH, XRCETH, immediate data, IETH.
    Word {
        word: U32,
    }
    /// Atomic acknowledge extended transport header (IBTA vol. 1, 9.5.3).
    AtomicAck {
        value: U64,
    }
}

/// Reads headers one after the other.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next header; `None` if the frame ends in it.
    #[inline]
    pub(super) fn take<T: Header>(&mut self) -> Option<&'a T> {
        let (header, rest) = T::ref_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(header)
    }

    #[inline]
    pub(super) fn word(&mut self) -> Option<u32> {
        self.take::<Word>().map(|header| header.word.get())
    }
}

/// Writes headers one after the other into a frame that has space for them.
pub(super) struct Writer<'a> {
    pub(super) frame: &'a mut [u8],
    pub(super) at: usize,
}

impl Writer<'_> {
    #[inline]
    pub(super) fn put<T: Header>(&mut self, header: T) {
        let bytes = header.as_bytes();
        self.frame[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    pub(super) fn word(&mut self, word: u32) {
        self.put(Word { word: word.into() });
    }
}
