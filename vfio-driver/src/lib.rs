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
//! The IOMMU has to be on, the function bound to vfio-pci, and every other function of its IOMMU group as well (or to
//! nothing). [`Rebinding`] does the binding and undoes it; `devinfo --bind` is that on the command line:
//!
//! ```text
//! modprobe vfio-pci
//! devinfo --device vfio:0000:3b:00.0 --bind
//! ulimit -l unlimited
//! ```
//!
//! What is missing, [`OpenError`] says by name: the driver that holds the function, the functions that make the group
//! unusable, the file without permission. Mapping memory fails with the number of bytes that the limit on locked memory
//! has to be raised to, or with the parameter that bounds the number of mappings.
//!
//! # What a user can rely on
//!
//! The function is reset when it is opened. When [`VfioDevice`] is dropped, also by a panic, the function is no longer bus
//! master and nothing is mapped or locked any more. The kernel does the same for a process that is killed. Memory that was
//! not allocated or mapped through the device is out of its reach: the IOMMU blocks the access, and the work request
//! fails. When the kernel wants the function back (hot unplug, unbinding), everybody who waits gets an error; see
//! [`VfioDevice::removal`].
//!
//! # What is proven
//!
//! All of the above, in a guest with a stock Linux 6.12, vfio-pci and Intel's IOMMU as QEMU emulates it (interrupt
//! remapping on), on the device model (`tests/on_device.rs`, run there by `cargo rig vfio`); beside unit tests that need no
//! device. Not on hardware, and not with an IOMMU of AMD's or Arm's. Virtual functions are those of the model, as a guest has
//! them: on a host, where their physical function is in sight, none was tried.
//!
//! # Limits
//!
//! Group and container mode only: iommufd's device files are not used, as the kernels of Debian 12 and 13 are built
//! without them. No no-IOMMU mode; one function per container; `vfio-pci` maps BARs uncached, so there is no write
//! combining.

mod address;
mod bar;
mod bind;
mod bitmap;
mod config;
mod device;
mod dma;
mod error;
mod event_channel;
mod interrupts;
mod iommu_info;
mod iova;
mod memory;
mod removal;
mod sys;
mod sysfs;
#[cfg(test)]
mod testing;
mod windows;

pub use address::{ParsePciAddressError, PciAddress};
pub use bind::{BindError, Rebinding, Step};
pub use device::{Options, VfioDevice};
pub use error::{Offender, OpenError};
pub use event_channel::EventChannel;
pub use removal::Removal;
