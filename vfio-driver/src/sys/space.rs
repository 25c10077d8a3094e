//! The address space that a function does DMA in: a container of VFIO's, or an iommufd with its IOAS.

// UNSAFETY: ioctls that vfio-ioctls lacks.
#![expect(unsafe_code)]

use std::any::Any;
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bareverbs_core::platform::DmaError;
use iommufd_bindings::iommufd::{
    IOMMUFD_CMD_IOAS_IOVA_RANGES, IOMMUFD_TYPE, iommu_ioas_iova_ranges, iommu_iova_range,
};
use iommufd_ioctls::{IommuFd, IommufdError};
use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};
use vfio_ioctls::{VfioContainer, VfioError, VfioIommufd, VfioOps};
use vmm_sys_util::errno::Error as SysError;
use vmm_sys_util::ioctl::{_IOC_NONE, ioctl_expr, ioctl_with_mut_ptr, ioctl_with_mut_ref};

use crate::dma::Iommu;
use crate::error::OpenError;
use crate::iommu_info::{self, FIXED, IommuInfo};
use crate::sysfs;

/// `VFIO_IOMMU_GET_INFO` in `linux/vfio.h`, which does not carry its argument's size.
const IOMMU_GET_INFO: u32 = VFIO_BASE + 12;

// Error numbers, the same on every Linux.
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;
const EMSGSIZE: i32 = 90;

/// One address space of the IOMMU.
#[derive(Clone)]
pub(crate) enum AddressSpace {
    Container(Arc<VfioContainer>),
    Iommufd(Arc<VfioIommufd>),
}

impl AddressSpace {
    /// A container, still without a group.
    pub(super) fn container() -> Result<Arc<VfioContainer>, OpenError> {
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
        Ok(Arc::new(container))
    }

    /// An iommufd with an IOAS, still without a function.
    pub(super) fn iommufd() -> Result<Arc<VfioIommufd>, OpenError> {
        let path = Path::new("/dev/iommu");
        let file = open(path, "open the iommufd")?;
        let iommufd = Arc::new(IommuFd::new_from_fd(file));
        let iommufd = VfioIommufd::new(iommufd, None, None);
        Ok(Arc::new(iommufd.map_err(|source| OpenError::Vfio {
            step: "allocate an IOAS",
            source,
        })?))
    }

    /// `true` if it is an iommufd's.
    pub(crate) fn is_iommufd(&self) -> bool {
        matches!(self, Self::Iommufd(_))
    }

    pub(super) fn info(&self) -> io::Result<IommuInfo> {
        match self {
            Self::Container(container) => container_info(container),
            Self::Iommufd(iommufd) => ioas_info(iommufd),
        }
    }

    /// Why memory could not be mapped.
    fn explain(&self, error: SysError, len: u64) -> DmaError {
        match error.errno() {
            ENOMEM => {
                let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
                let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
                let limit = sysfs::locked_memory_limit(&limits);
                match self {
                    Self::Container(_) => out_of_locked_memory(limit, &status, len),
                    Self::Iommufd(_) => out_of_pinned_memory(limit, &status, len),
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

/// A container as vfio-ioctls sees it, until the function is to be closed.
///
/// vfio-ioctls closes the function, looks its group's number up in sysfs again to take the group out of the container, and
/// panics if it is not there. After a hot unplug, the kernel removes it as soon as the function is closed. With the
/// membership ended, vfio-ioctls does neither; the group leaves when the container is closed.
pub(super) struct Membership {
    container: Arc<VfioContainer>,
    ended: AtomicBool,
}

impl Membership {
    pub(super) fn new(container: Arc<VfioContainer>) -> Self {
        Self {
            container,
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl VfioOps for Membership {
    fn as_any(&self) -> &dyn Any {
        if self.ended.load(Ordering::Relaxed) {
            return self;
        }
        &*self.container
    }
}

impl Iommu for AddressSpace {
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaError> {
        // SAFETY: passed on to the caller: the memory is used through raw pointers only while it is mapped.
        let mapped = unsafe {
            match self {
                Self::Container(container) => container.vfio_dma_map(iova, len, memory.as_ptr()),
                Self::Iommufd(iommufd) => iommufd.vfio_dma_map(iova, len, memory.as_ptr()),
            }
        };
        mapped.map_err(|error| match errno(&error) {
            Some(errno) => self.explain(errno, len as u64),
            None => DmaError::Os(EIO),
        })
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaError> {
        let unmapped = match self {
            Self::Container(container) => container.vfio_dma_unmap(iova, len),
            Self::Iommufd(iommufd) => iommufd.vfio_dma_unmap(iova, len),
        };
        // Without a number, another length came back than was asked for.
        unmapped.map_err(|error| DmaError::Os(errno(&error).map_or(EIO, |error| error.errno())))
    }
}

/// Opens a device file of VFIO's or of the IOMMU's.
pub(super) fn open(path: &Path, step: &'static str) -> Result<File, OpenError> {
    let file = File::options().read(true).write(true).open(path);
    file.map_err(|error| sysfs::open_failure(path.to_owned(), step, error))
}

/// The error number that mapping or unmapping failed with.
fn errno(error: &VfioError) -> Option<SysError> {
    match error {
        VfioError::IommuDmaMap(error)
        | VfioError::IommuDmaUnmap(error)
        | VfioError::IommufdIoctlError(
            IommufdError::IommuIoasMap(error) | IommufdError::IommuIoasUnmap(error),
        ) => Some(*error),
        _ => None,
    }
}

/// Bytes in KiB, rounded up, as errors have them.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// A container counts what is mapped as locked memory of the process, its other devices' included.
fn out_of_locked_memory(limit: Option<u64>, status: &str, len: u64) -> DmaError {
    let needed = sysfs::locked_memory(status)
        .unwrap_or(0)
        .saturating_add(len);
    // The kernel says the same when it has no memory for its own tables.
    match limit {
        Some(limit) if needed > limit => DmaError::LockedMemoryLimit {
            limit: kib(limit),
            needed: kib(needed),
        },
        _ => DmaError::OutOfMemory,
    }
}

/// An iommufd counts what is mapped for the user, in all processes together (`incr_user_locked_vm` of Linux), and root is
/// not exempt. How much that is, the kernel does not report, but it was within the limit before: `limit + len`
/// suffices.
fn out_of_pinned_memory(limit: Option<u64>, status: &str, len: u64) -> DmaError {
    let Some(limit) = limit else {
        return DmaError::OutOfMemory;
    };
    let here = sysfs::pinned_memory(status)
        .unwrap_or(0)
        .saturating_add(len);
    let needed = if here > limit {
        here
    } else {
        limit.saturating_add(len)
    };
    DmaError::LockedMemoryLimit {
        limit: kib(limit),
        needed: kib(needed),
    }
}

fn container_info(container: &VfioContainer) -> io::Result<IommuInfo> {
    let request = ioctl_expr(_IOC_NONE, VFIO_TYPE.into(), IOMMU_GET_INFO, 0);
    // Once to learn the length, and once for all of it.
    let mut len = FIXED;
    loop {
        // Of 64-bit words, as the structure is aligned to them.
        let mut info = vec![0u64; len.div_ceil(8)];
        let capacity = info.len() * 8;
        // `argsz` and `flags` share the first word; `argsz` is the one at the lower address.
        let argsz = u32::try_from(capacity).map_err(|_| io::ErrorKind::OutOfMemory)?;
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
        if needed <= capacity {
            return Ok(iommu_info::parse(&bytes));
        }
        len = needed;
    }
}

/// `IOMMU_IOAS_IOVA_RANGES`, which iommufd-ioctls lacks.
fn ioas_info(iommufd: &VfioIommufd) -> io::Result<IommuInfo> {
    let request = ioctl_expr(
        _IOC_NONE,
        IOMMUFD_TYPE.into(),
        IOMMUFD_CMD_IOAS_IOVA_RANGES,
        0,
    );
    let mut ranges = vec![iommu_iova_range::default(); 16];
    loop {
        let capacity = u32::try_from(ranges.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut asked = iommu_ioas_iova_ranges {
            size: size_of::<iommu_ioas_iova_ranges>() as u32,
            ioas_id: iommufd.ioas().id(),
            num_iovas: capacity,
            allowed_iovas: ranges.as_mut_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: the kernel writes the structure, and at most `num_iovas` ranges at `allowed_iovas`, where so many are.
        let status = unsafe { ioctl_with_mut_ref(&**iommufd.iommufd(), request, &mut asked) };
        let error = (status != 0).then(io::Error::last_os_error);
        match error {
            None => {
                ranges.truncate(asked.num_iovas as usize);
                let usable = ranges.iter().map(|range| range.start..=range.last);
                return Ok(IommuInfo::of_ioas(usable, asked.out_iova_alignment));
            }
            Some(error) if error.raw_os_error() == Some(EMSGSIZE) && asked.num_iovas > capacity => {
                ranges.resize(asked.num_iovas as usize, iommu_iova_range::default());
            }
            Some(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ioctl_failed_with_is_found_in_either_interface() {
        let full = || SysError::new(ENOMEM);
        for error in [
            VfioError::IommuDmaMap(full()),
            VfioError::IommuDmaUnmap(full()),
            VfioError::IommufdIoctlError(IommufdError::IommuIoasMap(full())),
            VfioError::IommufdIoctlError(IommufdError::IommuIoasUnmap(full())),
        ] {
            assert_eq!(errno(&error), Some(full()), "{error}");
        }
        assert_eq!(errno(&VfioError::InvalidDmaUnmapSize), None);
    }

    #[test]
    fn the_limit_that_would_have_sufficed_is_named() {
        let status = "VmLck:\t 64 kB\nVmPin:\t 48 kB\n";
        let (limit, len) = (Some(65536), 16384);
        let error = |limit, needed| DmaError::LockedMemoryLimit { limit, needed };
        assert_eq!(out_of_locked_memory(limit, status, len), error(64, 80));
        // What a container does not count is not named.
        assert_eq!(
            out_of_locked_memory(Some(1 << 20), status, len),
            DmaError::OutOfMemory
        );
        // Another process of the user's has the rest of the limit.
        assert_eq!(out_of_pinned_memory(limit, status, len), error(64, 80));
        assert_eq!(
            out_of_pinned_memory(limit, status, 1 << 20),
            error(64, 1072)
        );
        for out in [out_of_locked_memory, out_of_pinned_memory] {
            assert_eq!(out(None, status, len), DmaError::OutOfMemory);
        }
    }
}
