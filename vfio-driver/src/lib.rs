//! The bareverbs platform on Linux: an mlx5 function through VFIO.
//!
//! [`VfioDevice::open`] takes a PCI function that is bound to vfio-pci and implements
//! [`Platform`](bareverbs_core::platform::Platform) over it: BAR 0 mapped into the process, DMA memory and memory of the
//! caller behind the IOMMU, MSI-X as event file descriptors, and the function's configuration space. No kernel driver
//! of the device is involved, and no privilege beyond access to the group's file in `/dev/vfio` and a limit on locked
//! memory that suffices.
//!
//! ```no_run
//! use bareverbs_vfio::{Options, VfioDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = VfioDevice::open_with("0000:3b:00.0".parse()?, Options::with_vectors(4))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Preparing a function
//!
//! The IOMMU has to be on, and every function of the IOMMU group bound to vfio-pci (or to nothing):
//!
//! ```text
//! modprobe vfio-pci
//! driverctl set-override 0000:3b:00.0 vfio-pci
//! ulimit -l unlimited
//! ```
//!
//! What is missing, [`OpenError`] says by name: the driver that holds the function, the functions that make the group
//! unusable, the file without permission, the limit on locked memory.
//!
//! # What is proven
//!
//! Compiled, and unit-tested where no device is needed: addresses, the allocator of device addresses, the DMA arena and
//! the mapping of regions over an IOMMU that keeps books as VFIO does, the windows of a BAR and register access through
//! a file that stands for one, configuration space, interrupts through event descriptors, the diagnosis of sysfs. The
//! ioctls themselves have run against no device yet, neither an emulated nor a real one.
//!
//! # Limits
//!
//! Group and container mode only (iommufd's cdev is not used); no no-IOMMU mode; one function per container; `vfio-pci`
//! maps BARs uncached, so there is no write combining.

mod address;
mod bar;
mod bitmap;
mod config;
mod device;
mod dma;
mod error;
mod interrupts;
mod iommu_info;
mod iova;
mod memory;
mod sys;
mod sysfs;
#[cfg(test)]
mod testing;
mod windows;

pub use address::{ParsePciAddressError, PciAddress};
pub use device::{Options, VfioDevice};
pub use error::{Offender, OpenError};
