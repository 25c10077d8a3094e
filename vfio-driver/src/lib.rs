//! The bareverbs platform on Linux: an mlx5 function through VFIO.
//!
//! [`VfioDevice::open`] takes a PCI function that is bound to vfio-pci and implements
//! [`Platform`](bareverbs_core::platform::Platform) over it: BAR 0 mapped into the process, DMA memory and memory of the
//! caller behind the IOMMU, MSI-X as event file descriptors, and the function's configuration space. No kernel driver
//! of the device is involved, and no privilege beyond access to two device files and a limit on locked memory that
//! suffices.
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
//! unusable, the files without permission. Mapping memory fails with the number of bytes that the limit on locked memory
//! has to be raised to, or with the parameter that bounds the number of mappings.
//!
//! # Two interfaces
//!
//! Where the kernel has them, functions are opened through their own device files and an iommufd
//! (`/dev/vfio/devices/vfioN`, `/dev/iommu`); elsewhere, or where the user may not open those, through the IOMMU group and
//! a container (`/dev/vfio/GROUP`, `/dev/vfio/vfio`). [`Options::through`] or the environment variable `BAREVERBS_VFIO`
//! (`cdev`, `group`) decides otherwise. They differ in what counts as locked memory: a container counts what this process
//! has mapped, and root is exempt; an iommufd counts what all processes of the user have mapped, and root is not exempt. Only
//! a container bounds the number of mappings.
//!
//! # Reset
//!
//! The function is reset alone if it can be (FLR), by vfio-pci when it is opened. If not, its bus or slot is reset, which takes
//! along all functions there, such as the card's other port: they have to be bound to vfio-pci, and no process may use them.
//! Otherwise the function is not opened, and [`OpenError::NotReset`] names what is in the way.
//!
//! # What a user can rely on
//!
//! The function is reset when it is opened. When [`VfioDevice`] is dropped, also by a panic, the function is no longer bus
//! master and nothing is mapped or locked any more. The kernel does the same for a process that is killed. Memory that was
//! not allocated or mapped through the device is out of its reach: the IOMMU blocks the access, and the work request
//! fails. When the kernel requests the function back (hot unplug, unbinding), every thread that waits gets an error;
//! see [`VfioDevice::removal`].
//!
//! # What is proven
//!
//! All of the above, in guests with a stock Linux 6.12 and with one that is built with iommufd, with vfio-pci and Intel's
//! IOMMU as QEMU emulates it (interrupt remapping on), on the device model (`tests/on_device`, run there by
//! `cargo rig vfio`); beside unit tests that need no device. Not on hardware, and not with an IOMMU of AMD's or Arm's. A
//! reset with the bus is in unit tests only: a kernel in which a function's own reset is switched off refuses the bus's,
//! too, and the model's own reset does not fail. Virtual functions are those of
//! the model, as a guest has them: on a host, where their physical function is in sight, none was tried. BARs of which
//! vfio-pci lets parts be mapped only (kernels before 4.16, around the MSI-X table) are in unit tests only.
//!
//! # Limits
//!
//! No no-IOMMU mode; one function per container or iommufd, so two functions of one IOMMU group cannot be used at the same
//! time; `vfio-pci` maps BARs uncached, so there is no write combining. A virtual function whose physical function belongs
//! to vfio-pci, too, needs a token that there is no way to give.

mod address;
mod bar;
mod bind;
mod bitmap;
mod config;
mod device;
mod dma;
mod error;
mod event_channel;
mod interface;
mod interrupts;
mod iommu_info;
mod iova;
mod limits;
mod memory;
mod removal;
mod reset;
mod reset_error;
mod sys;
mod sysfs;
#[cfg(test)]
mod testing;
mod windows;

pub use address::{ParsePciAddressError, PciAddress};
pub use bind::{BindError, Rebinding, Step};
pub use device::{Options, VfioDevice};
pub use error::{ForeignDriver, OpenError};
pub use event_channel::EventChannel;
pub use interface::{Interface, ParseInterfaceError};
pub use limits::Limits;
pub use removal::Removal;
pub use reset_error::{HotResetError, Neighbour, Obstacle};
