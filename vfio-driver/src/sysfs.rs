//! The state of a function in sysfs, before the first ioctl: most failures of VFIO are faults of set-up, and the kernel's
//! error numbers do not distinguish them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;
use crate::error::{ForeignDriver, OpenError};

/// Mellanox Technologies, now NVIDIA networking.
const VENDOR: u16 = 0x15b3;

/// The functions that `mlx5_core` drives (its `mlx5_core_pci_table`): Connect-IB to ConnectX-10, BlueField 1 to 4.
const DEVICES: [u16; 25] = [
    0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c,
    0x101d, 0x101e, 0x101f, 0x1021, 0x1023, 0x1025, 0x1027, 0x2101, 0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc,
    0xa2df,
];

/// Drivers that leave a function of the group to VFIO: its own, and those that only keep others away.
fn is_harmless(driver: &str) -> bool {
    is_vfio(driver) || driver == "pci-stub"
}

/// vfio-pci, or one of its variants for certain devices (mlx5_vfio_pci).
pub(crate) fn is_vfio(driver: &str) -> bool {
    driver == "vfio-pci" || driver.ends_with("_vfio_pci") || driver.ends_with("-vfio-pci")
}

/// A function that VFIO can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its directory in sysfs.
    pub(crate) path: PathBuf,
    /// Its IOMMU group.
    pub(crate) group: u32,
    /// Its PCI device ID.
    pub(crate) device: u16,
    /// Its own device file, where the kernel has those (`CONFIG_VFIO_DEVICE_CDEV`).
    pub(crate) cdev: Option<PathBuf>,
}

/// A function of ours, with any driver.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its directory in sysfs.
    pub(crate) path: PathBuf,
    /// Its IOMMU group.
    pub(crate) group: u32,
    /// Its PCI device ID.
    pub(crate) device: u16,
}

impl Function {
    /// The driver that it is bound to.
    pub(crate) fn driver(&self) -> Result<Option<String>, OpenError> {
        link_name(&self.path.join("driver"))
    }

    /// The devices of the group that a driver of the kernel's own holds.
    fn foreign_drivers(&self) -> Result<Vec<ForeignDriver>, OpenError> {
        foreign_drivers(&self.path.join("iommu_group/devices"))
    }

    /// The same, except for the function itself.
    pub(crate) fn foreign_drivers_beside(
        &self,
        address: PciAddress,
    ) -> Result<Vec<ForeignDriver>, OpenError> {
        let mut foreign_drivers = self.foreign_drivers()?;
        let own = address.to_string();
        foreign_drivers.retain(|driver| driver.device != own);
        Ok(foreign_drivers)
    }
}

/// Looks the function up under `sysfs` (`/sys`), and whether there is an IOMMU before it.
pub(crate) fn function(sysfs: &Path, address: PciAddress) -> Result<Function, OpenError> {
    let path = sysfs.join("bus/pci/devices").join(address.to_string());
    if !path.is_dir() {
        return Err(OpenError::NoSuchDevice { address });
    }
    let vendor = id(&path.join("vendor"))?;
    let device = id(&path.join("device"))?;
    if vendor != VENDOR {
        return Err(OpenError::NotMellanox {
            address,
            vendor,
            device,
        });
    }
    if !DEVICES.contains(&device) {
        log::warn!(
            "{address}: {vendor:04x}:{device:04x} is not a device that mlx5 is known to drive"
        );
    }
    // Without an IOMMU, binding another driver would not help.
    let group_link = path.join("iommu_group");
    let Some(group) = link_name(&group_link)? else {
        return Err(OpenError::NoIommuGroup { address });
    };
    let group: u32 = group.parse().map_err(|_| OpenError::Sysfs {
        path: group_link.clone(),
        source: io::Error::new(io::ErrorKind::InvalidData, "not the number of a group"),
    })?;
    if fs::read_to_string(group_link.join("name")).is_ok_and(|name| name.trim() == "vfio-noiommu") {
        return Err(OpenError::NoIommuMode { group });
    }
    Ok(Function {
        path,
        group,
        device,
    })
}

/// Checks all that can be checked under `sysfs` of a function that is to be opened.
pub(crate) fn examine(sysfs: &Path, address: PciAddress) -> Result<Candidate, OpenError> {
    let function = function(sysfs, address)?;
    match function.driver()? {
        None => return Err(OpenError::NotBound { address }),
        Some(driver) if !is_vfio(&driver) => return Err(OpenError::BoundTo { address, driver }),
        Some(_) => {}
    }
    let foreign_drivers = function.foreign_drivers()?;
    let Function {
        path,
        group,
        device,
    } = function;
    if !foreign_drivers.is_empty() {
        return Err(OpenError::GroupNotViable {
            group,
            foreign_drivers,
        });
    }
    let cdev = cdev(&path);
    Ok(Candidate {
        path,
        group,
        device,
        cdev,
    })
}

/// The device file of a function that vfio-pci has: `vfio-dev/` in its directory names it. Kernels without device files
/// have that directory as well, but no device number in it.
pub(crate) fn cdev(path: &Path) -> Option<PathBuf> {
    let directory = path.join("vfio-dev");
    match names(&directory).as_slice() {
        [name] if directory.join(name).join("dev").exists() => {
            Some(Path::new("/dev/vfio/devices").join(name))
        }
        _ => None,
    }
}

/// The devices of a group that a driver of the kernel's own holds, in order of their names.
fn foreign_drivers(devices: &Path) -> Result<Vec<ForeignDriver>, OpenError> {
    let failed = |source| OpenError::Sysfs {
        path: devices.to_owned(),
        source,
    };
    let mut foreign_drivers = Vec::new();
    for entry in fs::read_dir(devices).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // A bridge stays with the kernel's port driver; it is of no harm, as it issues no DMA itself.
        let is_bridge = fs::read_to_string(path.join("class"))
            .is_ok_and(|class| class.trim_start().starts_with("0x0604"));
        if let Some(driver) = link_name(&path.join("driver"))?
            && !is_bridge
            && !is_harmless(&driver)
        {
            foreign_drivers.push(ForeignDriver {
                device: entry.file_name().to_string_lossy().into_owned(),
                driver,
            });
        }
    }
    foreign_drivers.sort_by(|a, b| a.device.cmp(&b.device));
    Ok(foreign_drivers)
}

/// The last component of where a link points, or nothing if there is no link.
pub(crate) fn link_name(path: &Path) -> Result<Option<String>, OpenError> {
    match fs::read_link(path) {
        Ok(target) => Ok(target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Sysfs {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The names in a directory, in order; none if it is not there.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

/// A PCI ID as sysfs writes it: `0x15b3`.
fn id(path: &Path) -> Result<u16, OpenError> {
    let failed = |source| OpenError::Sysfs {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(failed)?;
    text.trim()
        .strip_prefix("0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .ok_or_else(|| {
            failed(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a PCI ID in hexadecimal",
            ))
        })
}

/// Says why a file of VFIO's could not be opened.
pub(crate) fn open_failure(path: PathBuf, step: &'static str, error: io::Error) -> OpenError {
    // Where the module of the driver is not there, opening the file is ENODEV: the file itself is made at boot.
    const ENODEV: i32 = 19;
    match error.kind() {
        _ if error.raw_os_error() == Some(ENODEV) => OpenError::VfioMissing { path },
        io::ErrorKind::NotFound => OpenError::VfioMissing { path },
        io::ErrorKind::PermissionDenied => OpenError::Permission { path },
        io::ErrorKind::ResourceBusy => OpenError::InUse { path },
        _ => OpenError::Os {
            step,
            source: error,
        },
    }
}

/// The soft limit on locked memory in the text of `/proc/self/limits`, in bytes; nothing if there is none.
pub(crate) fn locked_memory_limit(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The bytes of locked memory, in the text of `/proc/self/status`; `None` if it does not say.
pub(crate) fn locked_memory(status: &str) -> Option<u64> {
    memory(status, "VmLck:")
}

/// The bytes of pinned memory, in the same text.
pub(crate) fn pinned_memory(status: &str) -> Option<u64> {
    memory(status, "VmPin:")
}

fn memory(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A sysfs of our own making, removed at the end.
    pub(crate) struct Sysfs(PathBuf);

    impl Sysfs {
        pub(crate) fn root(&self) -> &Path {
            &self.0
        }

        pub(crate) fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir()
                .join(format!("bareverbs-sysfs-{}-{count}", std::process::id()));
            fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
            Self(root)
        }

        fn device(&self, address: &str, vendor: &str, device: &str, class: &str) -> PathBuf {
            let path = self.0.join("bus/pci/devices").join(address);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(path.join("device"), format!("{device}\n")).unwrap();
            fs::write(path.join("class"), format!("{class}\n")).unwrap();
            path
        }

        pub(crate) fn nic(&self, address: &str) -> PathBuf {
            self.device(address, "0x15b3", "0x1017", "0x020000")
        }

        pub(crate) fn bind(&self, device: &Path, driver: &str) {
            let target = self.0.join("bus/pci/drivers").join(driver);
            fs::create_dir_all(&target).unwrap();
            symlink(target, device.join("driver")).unwrap();
        }

        pub(crate) fn group(&self, number: &str, devices: &[&Path]) -> PathBuf {
            let group = self.0.join("kernel/iommu_groups").join(number);
            fs::create_dir_all(group.join("devices")).unwrap();
            for device in devices {
                symlink(&group, device.join("iommu_group")).unwrap();
                symlink(
                    device,
                    group.join("devices").join(device.file_name().unwrap()),
                )
                .unwrap();
            }
            group
        }

        fn examine(&self) -> Result<Candidate, OpenError> {
            examine(&self.0, "3b:00.0".parse().unwrap())
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_device_ready_for_vfio_is_found() {
        for driver in ["vfio-pci", "mlx5_vfio_pci"] {
            let sysfs = Sysfs::new();
            let nic = sysfs.nic("0000:3b:00.0");
            sysfs.bind(&nic, driver);
            sysfs.group("42", &[&nic]);
            let found = sysfs.examine().unwrap();
            assert_eq!(
                (found.group, found.device, found.path),
                (42, 0x1017, nic.clone())
            );
        }
    }

    #[test]
    fn the_functions_own_device_file_is_found() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.bind(&nic, "vfio-pci");
        sysfs.group("42", &[&nic]);
        assert_eq!(sysfs.examine().unwrap().cdev, None);
        fs::create_dir_all(nic.join("vfio-dev/vfio7")).unwrap();
        // As in Debian's kernels, which are built without device files.
        assert_eq!(sysfs.examine().unwrap().cdev, None);
        fs::write(nic.join("vfio-dev/vfio7/dev"), "511:0\n").unwrap();
        let cdev = sysfs.examine().unwrap().cdev;
        assert_eq!(cdev, Some("/dev/vfio/devices/vfio7".into()));
    }

    #[test]
    fn an_address_without_a_function() {
        let error = Sysfs::new().examine().unwrap_err();
        assert!(matches!(error, OpenError::NoSuchDevice { .. }), "{error:?}");
        assert!(error.to_string().contains("0000:3b:00.0"));
    }

    #[test]
    fn another_vendors_function_is_named_by_its_ids() {
        let sysfs = Sysfs::new();
        sysfs.device("0000:3b:00.0", "0x8086", "0x10fb", "0x020000");
        let error = sysfs.examine().unwrap_err();
        assert!(
            matches!(
                error,
                OpenError::NotMellanox {
                    vendor: 0x8086,
                    device: 0x10fb,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("8086:10fb"));
    }

    #[test]
    fn ids_that_are_none_are_an_error_with_the_file() {
        let sysfs = Sysfs::new();
        sysfs.device("0000:3b:00.0", "15b3", "0x1017", "0x020000");
        let error = sysfs.examine().unwrap_err();
        assert!(error.to_string().contains("/vendor"), "{error}");
    }

    #[test]
    fn the_kernels_driver_is_named() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.bind(&nic, "mlx5_core");
        sysfs.group("1", &[&nic]);
        let error = sysfs.examine().unwrap_err();
        assert!(
            matches!(&error, OpenError::BoundTo { driver, .. } if driver == "mlx5_core"),
            "{error:?}"
        );
        assert!(error.to_string().contains("bound to mlx5_core"), "{error}");
    }

    #[test]
    fn no_driver_at_all() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.group("1", &[&nic]);
        let error = sysfs.examine().unwrap_err();
        assert!(matches!(error, OpenError::NotBound { .. }), "{error:?}");
    }

    #[test]
    fn no_group_means_no_iommu() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.bind(&nic, "mlx5_core");
        let error = sysfs.examine().unwrap_err();
        assert!(matches!(error, OpenError::NoIommuGroup { .. }), "{error:?}");
    }

    #[test]
    fn a_group_without_an_iommu_is_refused() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.bind(&nic, "vfio-pci");
        let group = sysfs.group("7", &[&nic]);
        fs::write(group.join("name"), "vfio-noiommu\n").unwrap();
        let error = sysfs.examine().unwrap_err();
        assert!(
            matches!(error, OpenError::NoIommuMode { group: 7 }),
            "{error:?}"
        );
    }

    #[test]
    fn the_functions_that_spoil_a_group_are_named() {
        let sysfs = Sysfs::new();
        let bridge = sysfs.device("0000:3a:00.0", "0x8086", "0x2030", "0x060400");
        let nic = sysfs.nic("0000:3b:00.0");
        let sibling = sysfs.nic("0000:3b:00.1");
        let disk = sysfs.device("0000:3c:00.0", "0x144d", "0xa808", "0x010802");
        let idle = sysfs.device("0000:3d:00.0", "0x144d", "0xa808", "0x010802");
        let stub = sysfs.device("0000:3e:00.0", "0x144d", "0xa808", "0x010802");
        sysfs.bind(&bridge, "pcieport");
        sysfs.bind(&nic, "vfio-pci");
        sysfs.bind(&sibling, "mlx5_core");
        sysfs.bind(&disk, "nvme");
        sysfs.bind(&stub, "pci-stub");
        sysfs.group("9", &[&bridge, &disk, &nic, &sibling, &idle, &stub]);
        let error = sysfs.examine().unwrap_err();
        let OpenError::GroupNotViable {
            group: 9,
            foreign_drivers,
        } = &error
        else {
            panic!("{error:?}");
        };
        let foreign_drivers: Vec<_> = foreign_drivers
            .iter()
            .map(|o| (o.device.as_str(), o.driver.as_str()))
            .collect();
        assert_eq!(
            foreign_drivers,
            [("0000:3b:00.1", "mlx5_core"), ("0000:3c:00.0", "nvme")]
        );
        let text = error.to_string();
        assert!(
            text.contains("0000:3b:00.1 is bound to mlx5_core, 0000:3c:00.0 is bound to nvme"),
            "{text}"
        );
    }

    #[test]
    fn a_group_that_is_no_number_is_an_error() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.bind(&nic, "vfio-pci");
        sysfs.group("seven", &[&nic]);
        let error = sysfs.examine().unwrap_err();
        assert!(error.to_string().contains("iommu_group"), "{error}");
    }

    #[test]
    fn failures_to_open_are_distinguished() {
        let kind = |kind| {
            open_failure(
                "/dev/vfio/42".into(),
                "open the group",
                io::Error::from(kind),
            )
        };
        assert!(matches!(
            kind(io::ErrorKind::NotFound),
            OpenError::VfioMissing { .. }
        ));
        let no_device = open_failure(
            "/dev/vfio/vfio".into(),
            "open the VFIO container",
            io::Error::from_raw_os_error(19),
        );
        assert!(
            no_device
                .to_string()
                .contains("modprobe -a vfio-pci vfio_iommu_type1"),
            "{no_device}"
        );
        assert!(matches!(
            kind(io::ErrorKind::PermissionDenied),
            OpenError::Permission { .. }
        ));
        assert!(matches!(
            kind(io::ErrorKind::ResourceBusy),
            OpenError::InUse { .. }
        ));
        assert!(matches!(
            kind(io::ErrorKind::OutOfMemory),
            OpenError::Os { .. }
        ));
    }

    #[test]
    fn what_is_locked_is_read() {
        assert_eq!(
            locked_memory("VmPeak:\t 9 kB\nVmLck:\t    64 kB\nVmPin:\t 3 kB\n"),
            Some(65536)
        );
        assert_eq!(pinned_memory("VmLck:\t 64 kB\nVmPin:\t 3 kB\n"), Some(3072));
        assert_eq!(locked_memory("VmLck: x kB"), None);
        assert_eq!(locked_memory(""), None);
        let real = fs::read_to_string("/proc/self/status").unwrap();
        assert!(locked_memory(&real).is_some(), "{real}");
    }

    #[test]
    fn the_limit_on_locked_memory_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max stack size            8388608              unlimited            bytes     \n\
                      Max locked memory         65536                1048576              bytes     \n";
        assert_eq!(locked_memory_limit(limits), Some(65536));
        assert_eq!(
            locked_memory_limit(
                "Max locked memory         unlimited            unlimited            bytes"
            ),
            None
        );
        assert_eq!(locked_memory_limit(""), None);
        // And the real file has the line in this form.
        let real = fs::read_to_string("/proc/self/limits").unwrap();
        assert!(
            real.lines()
                .any(|line| line.starts_with("Max locked memory")),
            "{real}"
        );
    }
}
