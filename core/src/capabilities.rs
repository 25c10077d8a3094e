//! What the device can do, after negotiation.

use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, RoceCap};
pub use bareverbs_firmware_cmds::init_segment::FirmwareVersion;

use crate::port::LinkLayer;

/// The capabilities in force.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities {
    /// Version of the firmware.
    pub firmware: FirmwareVersion,
    /// The software interface in force (0 or 1).
    pub issi: u8,
    /// The general group, as negotiated.
    pub hca: HcaCap,
    /// The RoCE group, if there is one.
    pub roce: Option<RoceCap>,
    /// The atomic group, if there is one.
    pub atomic: Option<AtomicCaps>,
}

impl Capabilities {
    /// What the port speaks.
    #[must_use]
    pub const fn link_layer(&self) -> LinkLayer {
        match self.hca.port_type() {
            0 => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        }
    }
}
