//! The offloads of frames that the device sends.

use core::num::NonZeroU16;

use bareverbs_firmware_cmds::wqe::ethernet;
use bitflags::bitflags;

bitflags! {
    /// The offloads of a frame that the device sends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct EthernetSendFlags: u8 {
        /// Fills in the checksum of an IPv4 header.
        const L3_CHECKSUM = ethernet::L3_CHECKSUM;
        /// Fills in the checksum of TCP or UDP, pseudo header included. Not of fragments.
        const L4_CHECKSUM = ethernet::L4_CHECKSUM;
        /// Does what [`L3_CHECKSUM`](Self::L3_CHECKSUM) does, for the frame inside a frame of VXLAN: behind UDP to port
        /// 4789, or to one that the card [was told](crate::Device::add_vxlan_port). A large send with it is one of the inner
        /// packet.
        const INNER_L3_CHECKSUM = ethernet::INNER_L3_CHECKSUM;
        /// Does what [`L4_CHECKSUM`](Self::L4_CHECKSUM) does, for the frame inside.
        const INNER_L4_CHECKSUM = ethernet::INNER_L4_CHECKSUM;
        /// Those of the frame itself.
        const OUTER = Self::L3_CHECKSUM.bits() | Self::L4_CHECKSUM.bits();
        /// Those of the frame inside.
        const INNER = Self::INNER_L3_CHECKSUM.bits() | Self::INNER_L4_CHECKSUM.bits();
    }
}

/// The work of the device on a frame beside sending it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EthernetOffload {
    /// Checksums.
    pub flags: EthernetSendFlags,
    /// The VLAN tag (its TCI; the type is 0x8100) that goes behind the addresses.
    pub vlan: Option<u16>,
    /// Large send: the header is that of TCP or UDP over IP, and the pieces are cut into so many bytes of payload for each
    /// packet. The device counts lengths, identifications and sequence numbers on; checksums only if `flags` say so.
    pub mss: Option<NonZeroU16>,
}
