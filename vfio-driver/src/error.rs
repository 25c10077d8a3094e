//! Why a device could not be opened, in words that say what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::address::PciAddress;
use crate::interface::ParseInterfaceError;
use crate::reset_error::HotResetError;

/// A device that keeps an IOMMU group from being used, and the driver that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignDriver {
    /// The device's name in sysfs, mostly its PCI address.
    pub device: String,
    /// The driver that holds it.
    pub driver: String,
}

/// Why [`VfioDevice::open`](crate::VfioDevice::open) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no function at this address.
    NoSuchDevice {
        /// The function that was asked for.
        address: PciAddress,
    },
    /// The function is not of Mellanox/NVIDIA networking.
    NotMellanox {
        /// The function that was asked for.
        address: PciAddress,
        /// The PCI vendor ID found.
        vendor: u16,
        /// The PCI device ID found.
        device: u16,
    },
    /// No driver is bound to the function.
    NotBound {
        /// The function that was asked for.
        address: PciAddress,
    },
    /// A driver that is not VFIO's is bound to the function.
    BoundTo {
        /// The function that was asked for.
        address: PciAddress,
        /// The driver's name.
        driver: String,
    },
    /// The function is in no IOMMU group: there is no IOMMU, or it is off.
    NoIommuGroup {
        /// The function that was asked for.
        address: PciAddress,
    },
    /// The group is one of VFIO's no-IOMMU mode, in which the device could write anywhere in memory.
    NoIommuMode {
        /// The group's number.
        group: u32,
    },
    /// Other functions of the group belong to drivers of the kernel.
    GroupNotViable {
        /// The group's number.
        group: u32,
        /// The functions with another driver. Empty if the kernel refused without a reason that sysfs shows.
        foreign_drivers: Vec<ForeignDriver>,
    },
    /// A device file is missing: `/dev/vfio/vfio` or the group's, `/dev/iommu` or the function's.
    VfioMissing {
        /// The file's path.
        path: PathBuf,
    },
    /// A file of VFIO's may not be opened by this user.
    Permission {
        /// The file's path.
        path: PathBuf,
    },
    /// Another process uses the function or its group.
    InUse {
        /// The file that was busy.
        path: PathBuf,
    },
    /// Neither the files of cdev nor those of the group can be opened.
    NeitherInterface {
        /// Why not the function's device file or `/dev/iommu`.
        cdev: Box<OpenError>,
        /// Why not the group's file or `/dev/vfio/vfio`.
        group: Box<OpenError>,
    },
    /// Cdev was asked for, and the function has no device file.
    NoCdev,
    /// The environment variable `BAREVERBS_VFIO` has no interface's name.
    Interface(ParseInterfaceError),
    /// The machine does not keep devices from raising each other's interrupts, and iommufd insists on that.
    InterruptsNotIsolated,
    /// The function cannot be reset, neither alone nor with its bus or slot.
    NotReset {
        /// The function that was asked for.
        address: PciAddress,
        /// Why not alone.
        alone: io::Error,
        /// Why not with its bus or slot.
        with_bus: HotResetError,
    },
    /// The kernel's VFIO does not have the type 1 (version 2) IOMMU interface.
    Unsupported {
        /// The error of vfio-ioctls.
        source: vfio_ioctls::VfioError,
    },
    /// A step of opening the device failed.
    Vfio {
        /// The step.
        step: &'static str,
        /// The error of vfio-ioctls.
        source: vfio_ioctls::VfioError,
    },
    /// A step of opening the device failed in the operating system.
    Os {
        /// The step.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// BAR 0 is absent or too short to be that of an mlx5 device.
    Bar {
        /// Its length in bytes.
        len: u64,
    },
    /// The function answers with all ones: it is gone, or in a sleep state.
    Gone {
        /// The function that was asked for.
        address: PciAddress,
    },
    /// The function did not take the command register's memory and bus master bits.
    CommandRegister {
        /// The value that was read back.
        value: u16,
    },
    /// Interrupts were asked for, and the function has no MSI-X.
    NoMsix,
    /// Reading sysfs failed.
    Sysfs {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDevice { address } => write!(f, "there is no PCI function {address}"),
            Self::NotMellanox {
                address,
                vendor,
                device,
            } => write!(
                f,
                "{address} is {vendor:04x}:{device:04x}, not a Mellanox/NVIDIA network function (vendor 15b3)"
            ),
            Self::NotBound { address } => write!(
                f,
                "{address} is bound to no driver: bind it to vfio-pci (devinfo --device vfio:{address} --bind, or driverctl)"
            ),
            Self::BoundTo { address, driver } => write!(
                f,
                "{address} is bound to {driver}: bind it to vfio-pci (devinfo --device vfio:{address} --bind, or \
                 driverctl); its network interface goes away with that"
            ),
            Self::NoIommuGroup { address } => write!(
                f,
                "{address} is in no IOMMU group: enable the IOMMU in the firmware's setup and in the kernel \
                 (intel_iommu=on; on by default for AMD)"
            ),
            Self::NoIommuMode { group } => write!(
                f,
                "group {group} is in VFIO's no-IOMMU mode, which is not supported: nothing would keep the device \
                 from writing anywhere in memory"
            ),
            Self::GroupNotViable { group, foreign_drivers } if foreign_drivers.is_empty() => {
                write!(
                    f,
                    "IOMMU group {group} is not viable, and sysfs does not show why"
                )
            }
            Self::GroupNotViable { group, foreign_drivers } => {
                write!(f, "IOMMU group {group} is not viable: ")?;
                for (index, ForeignDriver { device, driver }) in foreign_drivers.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{device} is bound to {driver}")?;
                }
                f.write_str(
                    " (every function of a group has to be bound to vfio-pci or to nothing)",
                )
            }
            Self::VfioMissing { path } => write!(
                f,
                "{} does not exist, or has no driver: load the modules (modprobe -a vfio-pci {})",
                path.display(),
                if path.starts_with("/dev/iommu") { "iommufd" } else { "vfio_iommu_type1" }
            ),
            Self::Permission { path } => write!(
                f,
                "no permission to open {}: run as root, or give this user the file (chown or a udev rule)",
                path.display()
            ),
            Self::InUse { path } => write!(
                f,
                "{} is in use by another process, and a function has one user: give each process a virtual function \
                 (echo 4 > /sys/bus/pci/devices/PHYSICAL/sriov_numvfs while mlx5_core has that one, then devinfo \
                 --device vfio:VIRTUAL --bind; docs/hardware.md has all of it)",
                path.display()
            ),
            Self::NeitherInterface { cdev, group } => {
                write!(f, "{cdev}; nor can its group be used: {group}")
            }
            Self::NoCdev => f.write_str(
                "the function has no device file in /dev/vfio/devices: the kernel was built without CONFIG_VFIO_DEVICE_CDEV",
            ),
            Self::Interface(error) => write!(f, "BAREVERBS_VFIO: {error}"),
            Self::InterruptsNotIsolated => f.write_str(
                "the machine has no interrupt remapping, or it is off, so a device could raise any interrupt: turn it on, \
                 or accept that (allow_unsafe_interrupts of iommufd)",
            ),
            Self::NotReset {
                address,
                alone,
                with_bus,
            } => write!(f, "{address} cannot be reset alone ({alone}), and {with_bus}"),
            Self::Unsupported { source } => {
                write!(f, "this kernel's VFIO lacks the type 1v2 IOMMU: {source}")
            }
            Self::Vfio { step, source } => write!(f, "failed to {step}: {source}"),
            Self::Os { step, source } => write!(f, "failed to {step}: {source}"),
            Self::Bar { len } => write!(
                f,
                "BAR 0 has {len:#x} bytes, too few for the registers of an mlx5 device"
            ),
            Self::Gone { address } => write!(
                f,
                "{address} answers with all ones: it was removed, or is in a sleep state"
            ),
            Self::CommandRegister { value } => write!(
                f,
                "the PCI command register reads {value:#06x} after memory space and bus master were turned on"
            ),
            Self::NoMsix => {
                f.write_str("the function has no MSI-X interrupts (open it in polling mode)")
            }
            Self::Sysfs { path, source } => {
                write!(f, "failed to read {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unsupported { source } | Self::Vfio { source, .. } => Some(source),
            Self::Interface(error) => Some(error),
            Self::NotReset { alone, .. } => Some(alone),
            Self::Os { source, .. } | Self::Sysfs { source, .. } => Some(source),
            _ => None,
        }
    }
}
