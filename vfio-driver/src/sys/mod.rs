//! The one module that calls vfio-ioctls and the ioctls that it lacks.
//!
//! vfio-ioctls changes its interface with each release and swallows some errors (reset, region access, the number of
//! a failed interrupt set-up), so its version is pinned and nothing of it is seen outside, errors aside.

// UNSAFETY: ioctls, and file descriptors that another value owns.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use bareverbs_core::platform::DmaError;
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP, VFIO_TYPE,
};
use vfio_ioctls::{VfioContainer, VfioError, VfioRegionInfoCap};
use vmm_sys_util::errno::Error as SysError;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::{_IOC_NONE, ioctl, ioctl_expr, ioctl_with_mut_ptr};

use crate::bar::Bar;
use crate::config::ConfigSpace;
use crate::dma::Iommu;
use crate::error::OpenError;
use crate::iommu_info::{self, FIXED, IommuInfo};
use crate::removal::Removal;
use crate::sysfs::{self, Candidate};
use crate::windows::{Area, windows};

/// `VFIO_DEVICE_RESET` and `VFIO_IOMMU_GET_INFO` in `linux/vfio.h`; neither carries its argument's size.
const DEVICE_RESET: u32 = VFIO_BASE + 11;
const IOMMU_GET_INFO: u32 = VFIO_BASE + 12;

/// Registers up to here are touched without looking: the initialization segment, and at least one doorbell page.
const SMALLEST_BAR: u64 = 0x4000;

// Error numbers, the same on every Linux.
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;

/// Bytes in KiB, rounded up, as errors have them.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn os(step: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Os { step, source }
}

/// The container: one address space of the IOMMU.
#[derive(Clone)]
pub(crate) struct Container(Arc<VfioContainer>);

impl Container {
    fn open() -> Result<Self, OpenError> {
        let container = VfioContainer::new(None).map_err(|error| match error {
            VfioError::OpenContainer(error) => {
                sysfs::open_failure("/dev/vfio/vfio".into(), "open the VFIO container", error)
            }
            source @ (VfioError::VfioApiVersion | VfioError::VfioExtension) => {
                OpenError::Unsupported { source }
            }
            source => OpenError::Vfio {
                step: "set up the VFIO container",
                source,
            },
        })?;
        Ok(Self(Arc::new(container)))
    }

    /// What the IOMMU can do. It is known only once a group is in the container.
    fn info(&self) -> io::Result<IommuInfo> {
        let container = self.0.as_ref();
        let request = ioctl_expr(_IOC_NONE, VFIO_TYPE.into(), IOMMU_GET_INFO, 0);
        // Once to learn the length, and once for all of it.
        let mut len = FIXED;
        loop {
            // Of 64-bit words, as the structure is aligned to them.
            let mut info = vec![0u64; len.div_ceil(8)];
            let room = info.len() * 8;
            // `argsz` and `flags` share the first word; `argsz` is the one at the lower address.
            let argsz = u32::try_from(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
            let mut first = [0; 8];
            first[..4].copy_from_slice(&argsz.to_ne_bytes());
            info[0] = u64::from_ne_bytes(first);
            // SAFETY: the kernel writes at most `argsz` bytes, and so many are there.
            let status = unsafe { ioctl_with_mut_ptr(container, request, info.as_mut_ptr()) };
            if status != 0 {
                return Err(io::Error::last_os_error());
            }
            let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let needed = bytes
                .first_chunk()
                .map_or(0, |argsz| u32::from_ne_bytes(*argsz) as usize);
            if needed <= room {
                return Ok(iommu_info::parse(&bytes));
            }
            len = needed;
        }
    }

    /// Why memory could not be mapped.
    fn explain(&self, error: SysError, len: u64) -> DmaError {
        match error.errno() {
            ENOMEM => {
                let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
                let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
                // The kernel's own account, which has the process's other devices in it as well.
                let needed = sysfs::locked_memory(&status)
                    .unwrap_or(0)
                    .saturating_add(len);
                // The kernel says the same when it has no memory for its own tables.
                match sysfs::locked_memory_limit(&limits) {
                    Some(limit) if needed > limit => DmaError::LockedMemoryLimit {
                        limit: kib(limit),
                        needed: kib(needed),
                    },
                    _ => DmaError::OutOfMemory,
                }
            }
            ENOSPC => {
                log::error!(
                    "VFIO takes no more mappings: raise dma_entry_limit of vfio_iommu_type1 \
                     (/sys/module/vfio_iommu_type1/parameters/dma_entry_limit)"
                );
                DmaError::TooManyMappings
            }
            errno => DmaError::Os(errno),
        }
    }
}

impl Iommu for Container {
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaError> {
        // SAFETY: passed on to the caller: the memory is used through raw pointers only while it is mapped.
        let mapped = unsafe { self.0.vfio_dma_map(iova, len, memory.as_ptr()) };
        match mapped {
            Ok(()) => Ok(()),
            Err(VfioError::IommuDmaMap(error)) => Err(self.explain(error, len as u64)),
            Err(_) => Err(DmaError::Os(5)),
        }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaError> {
        match self.0.vfio_dma_unmap(iova, len) {
            Ok(()) => Ok(()),
            Err(VfioError::IommuDmaUnmap(error)) => Err(DmaError::Os(error.errno())),
            // Another length came back than was asked for.
            Err(_) => Err(DmaError::Os(5)),
        }
    }
}

/// A PCI function that VFIO has handed over.
pub(crate) struct Function {
    device: ManuallyDrop<vfio_ioctls::VfioDevice>,
    /// Keeps the address space alive as long as the function.
    container: Container,
    group_link: PathBuf,
}

impl Function {
    /// Opens the function, in a container of its own.
    pub(crate) fn open(candidate: &Candidate) -> Result<Self, OpenError> {
        let container = Container::open()?;
        let group = candidate.group;
        let ops = container.0.clone();
        let device = vfio_ioctls::VfioDevice::new(&candidate.path, ops, false).map_err(
            |error| match error {
                VfioError::OpenGroup(error, _) => sysfs::open_failure(
                    Path::new("/dev/vfio").join(group.to_string()),
                    "open the VFIO group",
                    error,
                ),
                VfioError::GroupViable => OpenError::GroupNotViable {
                    group,
                    offenders: Vec::new(),
                },
                source => OpenError::Vfio {
                    step: "open the function through its VFIO group",
                    source,
                },
            },
        )?;
        Ok(Self {
            device: ManuallyDrop::new(device),
            container,
            group_link: candidate.path.join("iommu_group"),
        })
    }

    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    pub(crate) fn iommu_info(&self) -> Result<IommuInfo, OpenError> {
        self.container
            .info()
            .map_err(os("ask the IOMMU for its properties"))
    }

    /// A file of its own for the function, as the one inside of vfio-ioctls cannot be had.
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

    /// Resets the function alone (FLR, or what the kernel has in its place).
    pub(crate) fn reset(&self) -> io::Result<()> {
        let request = ioctl_expr(_IOC_NONE, VFIO_TYPE.into(), DEVICE_RESET, 0);
        // SAFETY: the ioctl takes no argument, and the descriptor is a VFIO device's.
        if unsafe { ioctl(&*self.device, request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Has an event raised when the function is lost for this reason, if the kernel knows it for this function: bus errors
    /// are those of PCI Express.
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

    /// How many MSI-X vectors the function has.
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

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let device = unsafe { ManuallyDrop::take(&mut self.device) };
        // To leave the group, vfio-ioctls looks its number up in sysfs again and panics if it is not there any more,
        // as after a hot unplug.
        if self.group_link.exists() {
            drop(device);
        } else {
            log::warn!(
                "{} has gone: its group is left at the end of the process",
                self.group_link.display()
            );
            // SAFETY: `device` owns the descriptor and is forgotten, so this is its only owner from now on.
            drop(unsafe { OwnedFd::from_raw_fd(device.as_raw_fd()) });
            std::mem::forget(device);
        }
    }
}
