//! Why a function cannot be reset together with its bus.

use std::fmt;
use std::io;

use crate::address::PciAddress;

/// Why a function could not be reset with its bus or slot.
#[derive(Debug)]
#[non_exhaustive]
pub enum HotResetError {
    /// The kernel cannot reset the bus or slot.
    NotOffered {
        /// The system's error.
        source: io::Error,
    },
    /// Other functions would be reset with it, and this process may not do that.
    Others(Vec<Neighbour>),
    /// The reset failed.
    Failed {
        /// The system's error.
        source: io::Error,
    },
}

/// A function that stands in the way of a reset of its bus or slot.
#[derive(Debug)]
pub struct Neighbour {
    /// The function's address.
    pub address: PciAddress,
    /// The obstacle.
    pub why: Obstacle,
}

/// Why a [`Neighbour`] cannot be reset.
#[derive(Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// No driver is bound to it; it has to be vfio-pci.
    NotBound,
    /// Another driver than vfio-pci is bound to it.
    BoundTo(String),
    /// It could not be claimed: mostly, a process uses it.
    Claim(io::Error),
}

impl fmt::Display for HotResetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered { source } => {
                write!(f, "the kernel cannot reset its bus or slot: {source}")
            }
            Self::Others(others) => {
                f.write_str("its bus or slot cannot be reset with")?;
                for (index, Neighbour { address, why }) in others.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {address}, which ")?;
                    match why {
                        Obstacle::NotBound => f.write_str("is not bound to vfio-pci")?,
                        Obstacle::BoundTo(driver) => write!(f, "is bound to {driver}")?,
                        Obstacle::Claim(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                            f.write_str("a process uses")?;
                        }
                        Obstacle::Claim(error) => write!(f, "cannot be claimed: {error}")?,
                    }
                }
                Ok(())
            }
            Self::Failed { source } => write!(f, "the reset of its bus or slot failed: {source}"),
        }
    }
}
