//! The interface of VFIO through which a function is opened: its cdev, or its group.

use std::str::FromStr;

use crate::error::OpenError;

/// The environment variable that says which interface, where the program does not.
const VARIABLE: &str = "BAREVERBS_VFIO";

/// VFIO's interfaces to user space (Linux, `Documentation/driver-api/vfio.rst`).
///
/// Both give the same function, and a function is opened through one of them at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Interface {
    /// The interface in the environment variable `BAREVERBS_VFIO` (`cdev` or `group`); without it, cdev where the kernel has
    /// it and this user may open its two files, or else the group.
    #[default]
    Auto,
    /// The function's device file (`/dev/vfio/devices/vfioN`) and an iommufd (`/dev/iommu`): kernels with
    /// `CONFIG_VFIO_DEVICE_CDEV`, since Linux 6.6.
    Cdev,
    /// The file of its IOMMU group (`/dev/vfio/GROUP`) and a container (`/dev/vfio/vfio`).
    Group,
}

/// A text that names no [`Interface`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no interface of VFIO: cdev, group or auto")]
pub struct ParseInterfaceError(String);

impl FromStr for Interface {
    type Err = ParseInterfaceError;

    fn from_str(text: &str) -> Result<Self, ParseInterfaceError> {
        match text {
            "auto" | "" => Ok(Self::Auto),
            "cdev" => Ok(Self::Cdev),
            "group" => Ok(Self::Group),
            _ => Err(ParseInterfaceError(text.to_string())),
        }
    }
}

impl Interface {
    /// The interface itself, unless it is `Auto`; then the one that the environment names.
    pub(crate) fn or_environment(self) -> Result<Self, ParseInterfaceError> {
        if self != Self::Auto {
            return Ok(self);
        }
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        text.to_string_lossy().parse()
    }

    /// Opens through this interface, or through whichever is there.
    pub(crate) fn open<T>(
        self,
        has_cdev: bool,
        cdev: impl FnOnce() -> Result<T, OpenError>,
        group: impl FnOnce() -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        match self {
            Self::Cdev => cdev(),
            Self::Group => group(),
            Self::Auto if !has_cdev => group(),
            Self::Auto => match cdev() {
                Err(cdev) if is_about_files(&cdev) => match group() {
                    Err(group) if is_about_files(&group) => Err(OpenError::NeitherInterface {
                        cdev: Box::new(cdev),
                        group: Box::new(group),
                    }),
                    other => {
                        log::info!("opened through its group: {cdev}");
                        other
                    }
                },
                other => other,
            },
        }
    }
}

/// `true` if a file is not there, or may not be opened.
fn is_about_files(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::VfioMissing { .. } | OpenError::Permission { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_permission(path: &str) -> OpenError {
        OpenError::Permission { path: path.into() }
    }

    fn open(
        interface: Interface,
        has_cdev: bool,
        cdev: Result<(), OpenError>,
        group: Result<(), OpenError>,
    ) -> Result<&'static str, String> {
        let cdev = || cdev.map(|()| "cdev");
        let group = || group.map(|()| "group");
        let opened = interface.open(has_cdev, cdev, group);
        opened.map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_machine_has_is_used() {
        let auto = Interface::Auto;
        assert_eq!(open(auto, true, Ok(()), Ok(())), Ok("cdev"));
        assert_eq!(open(auto, false, Ok(()), Ok(())), Ok("group"));
        // This user may not, or iommufd's module is not there.
        let missing = OpenError::VfioMissing {
            path: "/dev/iommu".into(),
        };
        for error in [no_permission("/dev/iommu"), missing] {
            assert_eq!(open(auto, true, Err(error), Ok(())), Ok("group"));
        }
    }

    #[test]
    fn what_is_asked_for_is_used_or_an_error() {
        for (interface, name) in [(Interface::Cdev, "cdev"), (Interface::Group, "group")] {
            assert_eq!(open(interface, true, Ok(()), Ok(())), Ok(name));
            let failure = || Err(no_permission("/dev/one"));
            let error = open(interface, true, failure(), failure()).unwrap_err();
            assert!(error.contains("/dev/one:"), "{error}");
        }
        let error = open(Interface::Cdev, false, Err(OpenError::NoCdev), Ok(())).unwrap_err();
        assert!(error.contains("CONFIG_VFIO_DEVICE_CDEV"), "{error}");
    }

    #[test]
    fn the_files_of_both_interfaces_are_named() {
        let cdev = Err(no_permission("/dev/vfio/devices/vfio3"));
        let group = Err(no_permission("/dev/vfio/42"));
        let error = open(Interface::Auto, true, cdev, group).unwrap_err();
        for file in ["/dev/vfio/devices/vfio3", "/dev/vfio/42"] {
            assert!(error.contains(file), "{error}");
        }
    }

    #[test]
    fn a_function_that_is_in_use_is_not_tried_again() {
        let busy = OpenError::InUse {
            path: "/dev/vfio/devices/vfio3".into(),
        };
        let error = open(Interface::Auto, true, Err(busy), Ok(())).unwrap_err();
        assert!(error.contains("vfio3 is in use"), "{error}");
    }

    #[test]
    fn names_of_interfaces() {
        assert_eq!("cdev".parse(), Ok(Interface::Cdev));
        assert_eq!("group".parse(), Ok(Interface::Group));
        assert_eq!("".parse(), Ok(Interface::Auto));
        let error = "iommufd".parse::<Interface>().unwrap_err();
        assert!(error.to_string().contains("\"iommufd\""), "{error}");
    }
}
