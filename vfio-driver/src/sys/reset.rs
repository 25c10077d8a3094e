//! The ioctls of VFIO's resets, which vfio-ioctls lacks or swallows the errors of.

// UNSAFETY: ioctls.
#![expect(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_DEVICE_FLAGS_RESET, VFIO_TYPE};
use vfio_ioctls::{VfioDevice, VfioError};
use vmm_sys_util::ioctl::{_IOC_NONE, ioctl, ioctl_expr, ioctl_with_mut_ptr, ioctl_with_ptr};

use super::space::AddressSpace;
use super::{Function, Handle};
use crate::reset::{Affected, INFO_EACH, INFO_FIXED, Resettable, parse_info};
use crate::sysfs;

/// `VFIO_DEVICE_GET_INFO`, `VFIO_DEVICE_RESET`, `VFIO_DEVICE_GET_PCI_HOT_RESET_INFO` and `VFIO_DEVICE_PCI_HOT_RESET` in
/// `linux/vfio.h`; none carries its argument's size.
const DEVICE_INFO: u32 = VFIO_BASE + 7;
const DEVICE_RESET: u32 = VFIO_BASE + 11;
const HOT_RESET_INFO: u32 = VFIO_BASE + 12;
const HOT_RESET: u32 = VFIO_BASE + 13;

const ENOSPC: i32 = 28;

/// A claim that keeps a function that is reset with another one this process's.
pub(crate) enum Claim {
    /// Its group's file.
    Group(File),
    /// The function in the same iommufd, in no address space.
    Function(#[expect(dead_code, reason = "held until it is dropped")] Handle),
}

fn request(number: u32) -> std::os::raw::c_ulong {
    ioctl_expr(_IOC_NONE, VFIO_TYPE.into(), number, 0)
}

impl Resettable for Function {
    type Claim = Claim;

    /// FLR, or what the kernel has in its place.
    fn reset_function(&self) -> io::Result<()> {
        // SAFETY: the ioctl takes no argument, and the descriptor is a VFIO device's.
        if unsafe { ioctl(&*self.device, request(DEVICE_RESET)) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn affected(&self) -> io::Result<Vec<Affected>> {
        let mut count = 8;
        loop {
            let len = INFO_FIXED + count * INFO_EACH;
            // Of 32-bit words, as the structure is aligned to them; `argsz` is the first.
            let mut info = vec![0u32; len / 4];
            info[0] = u32::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
            // SAFETY: the kernel writes at most `argsz` bytes, and so many are there.
            let status = unsafe {
                ioctl_with_mut_ptr(&*self.device, request(HOT_RESET_INFO), info.as_mut_ptr())
            };
            if status == 0 {
                let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
                return Ok(parse_info(&bytes));
            }
            let error = io::Error::last_os_error();
            // Their number comes with this error.
            let needed = info[2] as usize;
            if error.raw_os_error() != Some(ENOSPC) || needed <= count {
                return Err(error);
            }
            count = needed;
        }
    }

    fn claim(&self, path: &Path, other: &Affected) -> io::Result<Claim> {
        match (&self.space, other.group) {
            (AddressSpace::Container(_), Some(group)) => {
                let path = Path::new("/dev/vfio").join(group.to_string());
                let file = File::options().read(true).write(true).open(path)?;
                Ok(Claim::Group(file))
            }
            (AddressSpace::Iommufd(iommufd), _) => {
                let cdev = sysfs::cdev(path).ok_or(io::ErrorKind::NotFound)?;
                let file = File::options().read(true).write(true).open(cdev)?;
                let device = VfioDevice::new_from_fd(file, iommufd.clone(), false);
                let device = device.map_err(|error| match error {
                    VfioError::VfioDeviceBindIommufd(error) if super::is_in_use(error) => {
                        io::ErrorKind::ResourceBusy.into()
                    }
                    error => io::Error::other(error),
                })?;
                Ok(Claim::Function(Handle::of_cdev(device)))
            }
            (AddressSpace::Container(_), None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn reset_bus(&self, claims: &[Claim]) -> io::Result<()> {
        // An iommufd needs no proof; of groups, the files are.
        let mut files = Vec::new();
        if let AddressSpace::Container(_) = self.space {
            files.push(self.group_file()?);
            files.extend(claims.iter().filter_map(|claim| match claim {
                Claim::Group(file) => Some(file.as_raw_fd()),
                Claim::Function(_) => None,
            }));
        }
        let count = u32::try_from(files.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // `argsz`, `flags`, `count`, and the files.
        let mut asked = vec![12 + 4 * count, 0, count];
        asked.extend(files.iter().map(|file| file.cast_unsigned()));
        // SAFETY: the kernel reads at most `argsz` bytes, and so many are there.
        if unsafe { ioctl_with_ptr(&*self.device, request(HOT_RESET), asked.as_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Function {
    /// Returns `true` if vfio-pci has reset the function alone when this process opened it. It tries to at each opening
    /// (`vfio_pci_core_enable` of Linux), and a function is not opened twice; whether it could, it says ever after
    /// (`VFIO_DEVICE_FLAGS_RESET`).
    pub(crate) fn was_reset(&self) -> bool {
        // `argsz`, `flags`, and the numbers of regions and interrupts.
        let mut info = [16u32, 0, 0, 0];
        // SAFETY: the kernel writes at most `argsz` bytes, and so many are there.
        let status =
            unsafe { ioctl_with_mut_ptr(&*self.device, request(DEVICE_INFO), info.as_mut_ptr()) };
        status == 0 && info[1] & VFIO_DEVICE_FLAGS_RESET != 0
    }

    /// The group's file, which vfio-ioctls keeps to itself. A group is open once only, so a file of that name is the one.
    fn group_file(&self) -> io::Result<RawFd> {
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            if fs::read_link(entry.path()).is_ok_and(|file| file == self.group_path)
                && let Some(number) = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok())
            {
                return Ok(number);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}
