//! IP over InfiniBand (RFC 4391): what an [IP host](crate::ip) sends and takes as Ethernet frames, in the packets of
//! a datagram QP, sans-I/O.
//!
//! Each interface has a hardware address of 20 bytes: the number of its QP and the GID of its port. A [`Link`] keeps those of
//! the neighbours, and stands for each of them with an Ethernet address of its own making, so that the host is the one of
//! Ethernet's ports. ARP packets and the options of neighbour discovery are rewritten; all else passes with another header.
//!
//! ```
//! use bareverbs_cm::ipoib::*;
//!
//! let own = HardwareAddress { qpn: 0x55, gid: [1; 16] };
//! let peer = Sender { qpn: 0x66, lid: 3, service_level: 0, gid: Some([2; 16]) };
//! let mut slots = [PeerSlot::EMPTY; 4];
//! let mut link = Link::new(own, 0xffff, &mut slots);
//! // An IPv4 packet of 20 bytes, without a payload.
//! let mut packet = vec![0x08, 0x00, 0, 0, 0x45, 0, 0, 20];
//! packet.resize(24, 0);
//! let mut frame = [0; 1536];
//! assert_eq!(link.incoming(&packet, &peer, false, &mut frame), Some(60));
//! assert_eq!(frame[..6], link.mac());
//! // The answer goes back to whom the source's address stands for.
//! frame.copy_within(6..12, 0);
//! let mut answer = [0; 1536];
//! let (to, length) = link.outgoing(&frame[..60], &mut answer).unwrap();
//! assert_eq!(answer[..length], packet);
//! assert!(matches!(to, To::Peer(Peer { lid: 3, address: HardwareAddress { qpn: 0x66, .. }, .. })));
//! ```

mod address;
mod interface;
mod link;
pub(crate) mod resolver;
mod rewrite;
pub(crate) mod stack;

pub use address::{HARDWARE_LEN, HardwareAddress, broadcast_group, group};
pub use link::{Link, Peer, PeerSlot, Sender, To};

/// The header before each packet: its type as Ethernet has it, and 16 bits that are reserved.
pub const HEADER_LEN: usize = 4;
