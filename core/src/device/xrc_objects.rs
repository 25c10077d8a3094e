//! The objects of a device for extended reliable connections: those that contexts have to name, and the
//! default domain.

use bareverbs_firmware_cmds::numbers::Xrcdn;

use crate::memory::dma::DmaMemory;

/// In place of a user index: there is none.
pub(crate) const NO_USER_INDEX: u32 = 0xff_ffff;

/// The numbers of the objects, as far as they exist.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Objects {
    pub(crate) pdn: Option<u32>,
    pub(crate) cqn: Option<u32>,
    pub(crate) xrcdn: Option<u32>,
    pub(crate) srqn: Option<u32>,
}

/// The objects that a context names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XrcNumbers {
    pub(crate) pdn: u32,
    pub(crate) cqn: u32,
    pub(crate) xrcdn: u32,
    pub(crate) srqn: u32,
}

/// The objects, and how many QPs name them.
#[derive(Debug, Default)]
pub(crate) struct XrcBase {
    pub(crate) users: u32,
    pub(crate) objects: Objects,
    pub(crate) memory: Option<DmaMemory>,
}

/// The default domain, and who uses it.
#[derive(Debug, Default)]
pub(crate) struct DefaultXrcd {
    pub(crate) xrcdn: Option<Xrcdn>,
    pub(crate) users: u32,
}
