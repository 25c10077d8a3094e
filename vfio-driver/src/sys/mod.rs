//! The one module that calls vfio-ioctls and the ioctls that it lacks.
//!
//! vfio-ioctls changes its interface with each release and drops some errors (reset, region access, the number of a
//! failed interrupt set-up), so its version is pinned and nothing of it is seen outside, errors aside.

// UNSAFETY: ioctls, and file descriptors that another value owns.
#![expect(unsafe_code)]

mod reset;
mod space;

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP,
};
use vfio_ioctls::{VfioDevice, VfioError, VfioRegionInfoCap};
use vmm_sys_util::errno::Error as SysError;
use vmm_sys_util::eventfd::EventFd;

use crate::bar::Bar;
use crate::config::ConfigSpace;
use crate::error::OpenError;
use crate::interface::Interface;
use crate::iommu_info::IommuInfo;
use crate::removal::Removal;
use crate::sysfs::{self, Candidate};
use crate::windows::{Area, windows};

pub(crate) use space::AddressSpace;
use space::Membership;

/// Registers up to here are touched without looking: the initialization segment, and at least one doorbell page.
const SMALLEST_BAR: u64 = 0x4000;

// Error numbers, the same on every Linux.
const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

fn os(step: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Os { step, source }
}

/// A PCI function that VFIO has handed over.
pub(crate) struct Function {
    // Before the address space that it is in.
    device: Handle,
    space: AddressSpace,
    /// The file of its group, which is open in group mode only.
    group_path: PathBuf,
}

impl Function {
    /// Opens the function, in its own address space.
    pub(crate) fn open(candidate: &Candidate, interface: Interface) -> Result<Self, OpenError> {
        interface.open(
            candidate.cdev.is_some(),
            || Self::open_cdev(candidate),
            || Self::open_group(candidate),
        )
    }

    /// Through the function's own device file and an iommufd.
    fn open_cdev(candidate: &Candidate) -> Result<Self, OpenError> {
        let Some(path) = &candidate.cdev else {
            return Err(OpenError::NoCdev);
        };
        let file = space::open(path, "open the function's device file")?;
        let iommufd = AddressSpace::iommufd()?;
        let opened = VfioDevice::new_from_fd(file, iommufd.clone(), true);
        let device = opened.map_err(|error| match error {
            VfioError::VfioDeviceBindIommufd(error) if is_in_use(error) => {
                OpenError::InUse { path: path.clone() }
            }
            VfioError::VfioDeviceBindIommufd(error) if error.errno() == EPERM => {
                OpenError::InterruptsNotIsolated
            }
            source => OpenError::Vfio {
                step: "open the function through its device file",
                source,
            },
        })?;
        let space = AddressSpace::Iommufd(iommufd);
        Ok(Self::new(candidate, Handle::of_cdev(device), space))
    }

    /// Through its group, in a container.
    fn open_group(candidate: &Candidate) -> Result<Self, OpenError> {
        let container = AddressSpace::container()?;
        let membership = Arc::new(Membership::new(container.clone()));
        let group = candidate.group;
        let opened = VfioDevice::new(&candidate.path, membership.clone(), false);
        let device = opened.map_err(|error| match error {
            VfioError::OpenGroup(error, _) => {
                sysfs::open_failure(group_path(group), "open the VFIO group", error)
            }
            VfioError::GroupViable => OpenError::GroupNotViable {
                group,
                foreign_drivers: Vec::new(),
            },
            source => OpenError::Vfio {
                step: "open the function through its VFIO group",
                source,
            },
        })?;
        let handle = Handle {
            device: ManuallyDrop::new(device),
            membership: Some(membership),
        };
        Ok(Self::new(
            candidate,
            handle,
            AddressSpace::Container(container),
        ))
    }

    fn new(candidate: &Candidate, device: Handle, space: AddressSpace) -> Self {
        Self {
            device,
            space,
            group_path: group_path(candidate.group),
        }
    }

    pub(crate) fn space(&self) -> &AddressSpace {
        &self.space
    }

    pub(crate) fn iommu_info(&self) -> Result<IommuInfo, OpenError> {
        self.space
            .info()
            .map_err(os("ask the IOMMU for its properties"))
    }

    /// A separate file for the function, as the one inside of vfio-ioctls cannot be had.
    fn file(&self) -> io::Result<File> {
        // SAFETY: the descriptor is open as long as `device` is there, and the borrow ends within this expression.
        let fd = unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) };
        fd.try_clone_to_owned().map(File::from)
    }

    /// The function's configuration space.
    pub(crate) fn config(&self) -> Result<ConfigSpace, OpenError> {
        let region = VFIO_PCI_CONFIG_REGION_INDEX;
        let file = self.file().map_err(os("duplicate the function's file"))?;
        Ok(ConfigSpace::new(
            file,
            self.device.get_region_offset(region),
            self.device.get_region_size(region),
        ))
    }

    /// BAR 0, mapped as far as the kernel allows, in whole pages of `page` bytes.
    pub(crate) fn bar(&self, page: u64) -> Result<Bar, OpenError> {
        let region = VFIO_PCI_BAR0_REGION_INDEX;
        let len = self.device.get_region_size(region);
        let usable = usize::try_from(len).ok().filter(|_| len >= SMALLEST_BAR);
        let Some(usable) = usable else {
            return Err(OpenError::Bar { len });
        };
        let file = self.file().map_err(os("duplicate the function's file"))?;
        let windows = self.windows(region, len, page);
        let start = self.device.get_region_offset(region);
        Bar::map(file, start, usable, &windows).map_err(os("map BAR 0"))
    }

    /// The registers as the function's file gives them, without a mapping: of a function that decodes no addresses the read
    /// fails, where one through a mapping ends the process.
    pub(crate) fn registers(&self) -> io::Result<Bar> {
        let region = VFIO_PCI_BAR0_REGION_INDEX;
        let len = usize::try_from(self.device.get_region_size(region)).unwrap_or(usize::MAX);
        let start = self.device.get_region_offset(region);
        Bar::map(self.file()?, start, len, &[])
    }

    fn windows(&self, region: u32, len: u64, page: u64) -> Vec<Range<u64>> {
        if self.device.get_region_flags(region) & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return Vec::new();
        }
        let caps = self.device.get_region_caps(region);
        let sparse = caps.iter().find_map(|cap| match cap {
            VfioRegionInfoCap::SparseMmap(sparse) => Some(&sparse.areas),
            _ => None,
        });
        let areas: Option<Vec<Area>> = sparse.map(|areas| {
            areas
                .iter()
                .map(|area| Area {
                    offset: area.offset,
                    size: area.size,
                })
                .collect()
        });
        windows(len, areas.as_deref(), page)
    }

    /// Has an event raised when the function is lost for this reason, if the kernel supports it for this function: bus
    /// errors are those of PCI Express.
    pub(crate) fn watch(&self, removal: Removal, event: &EventFd) -> Result<(), OpenError> {
        let index = irq_index(removal);
        if self
            .device
            .get_irq_info(index)
            .is_none_or(|irq| irq.count == 0)
        {
            log::debug!("the kernel has no event for: {removal}");
            return Ok(());
        }
        self.device
            .enable_irq(index, vec![event])
            .map_err(|source| OpenError::Vfio {
                step: "watch for the function's removal",
                source,
            })
    }

    /// Undoes [`watch`](Self::watch).
    pub(crate) fn unwatch(&self, removal: Removal) {
        let index = irq_index(removal);
        if self
            .device
            .get_irq_info(index)
            .is_some_and(|irq| irq.count != 0)
            && let Err(error) = self.device.disable_irq(index)
        {
            log::debug!("an event could not be disabled: {error}");
        }
    }

    /// The number of MSI-X vectors that the function has.
    pub(crate) fn msix_vectors(&self) -> u32 {
        self.device
            .get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX)
            .map_or(0, |irq| irq.count)
    }

    /// Routes the vectors from 0 on to the events.
    pub(crate) fn enable_msix(&self, events: Vec<&EventFd>) -> Result<(), OpenError> {
        self.device
            .enable_msix(events)
            .map_err(|source| OpenError::Vfio {
                step: "enable MSI-X",
                source,
            })
    }

    /// Takes all vectors away.
    pub(crate) fn disable_msix(&self) {
        if let Err(error) = self.device.disable_msix() {
            log::warn!("MSI-X could not be disabled: {error}");
        }
    }
}

/// VFIO counts its own events as interrupts.
fn irq_index(removal: Removal) -> u32 {
    match removal {
        Removal::Requested => VFIO_PCI_REQ_IRQ_INDEX,
        Removal::BusError => VFIO_PCI_ERR_IRQ_INDEX,
    }
}

fn group_path(group: u32) -> PathBuf {
    Path::new("/dev/vfio").join(group.to_string())
}

/// `true` if a function could not be bound to an iommufd because another process has it, or had its group opened. A device
/// file that another process has bound opens all the same, and cannot be bound again (EINVAL, `vfio_df_open` of Linux).
fn is_in_use(error: SysError) -> bool {
    matches!(error.errno(), EBUSY | EINVAL)
}

/// The function of vfio-ioctls, which has to be closed with care.
pub(crate) struct Handle {
    device: ManuallyDrop<VfioDevice>,
    /// In group mode.
    membership: Option<Arc<Membership>>,
}

impl Handle {
    fn of_cdev(device: VfioDevice) -> Self {
        Self {
            device: ManuallyDrop::new(device),
            membership: None,
        }
    }
}

impl Deref for Handle {
    type Target = VfioDevice;

    fn deref(&self) -> &VfioDevice {
        &self.device
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let fd = self.device.as_raw_fd();
        // SAFETY: taken once, here, and not used afterwards.
        let device = unsafe { ManuallyDrop::take(&mut self.device) };
        if let Some(membership) = &self.membership {
            membership.end();
            drop(device);
        } else if device.detach_hwpt().is_ok() {
            // vfio-ioctls expects that the function can be detached from its address space, for which the kernel wakes
            // a function that sleeps. Detached is detached: the second time succeeds.
            drop(device);
            return;
        } else {
            log::warn!("the function has gone: its iommufd is left at the end of the process");
            std::mem::forget(device);
        }
        // SAFETY: the descriptor is still open, as vfio-ioctls closes it only when it leaves a container or an iommufd,
        // which it did not: this is its only owner from now on.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}
