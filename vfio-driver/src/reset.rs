//! Resetting a function: alone if it can be, else with its bus or slot.
//!
//! Some functions cannot be reset alone, or fail to: then the kernel can reset the bus or slot (VFIO's hot reset), and with
//! it every function that is there, such as the card's second port. It does that for a process that has all of them. Those
//! that no process uses are claimed for the time of the reset; any other stands in the way, and is named.

use std::io;
use std::path::Path;

use crate::address::PciAddress;
use crate::reset_error::{HotResetError, Neighbour, Obstacle};
use crate::sysfs;

/// The reset of a function, and of the functions that are reset with it.
pub(crate) trait Resettable {
    /// A claim that keeps another function this process's.
    type Claim;

    /// Resets the function alone.
    fn reset_function(&self) -> io::Result<()>;

    /// The functions that would be reset with its bus or slot, itself included.
    fn affected(&self) -> io::Result<Vec<Affected>>;

    /// Makes an affected function this process's.
    fn claim(&self, path: &Path, other: &Affected) -> io::Result<Self::Claim>;

    /// Resets bus or slot; all that is affected is this process's.
    fn reset_bus(&self, claims: &[Self::Claim]) -> io::Result<()>;
}

/// A function that is reset with its bus or slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Affected {
    pub(crate) address: PciAddress,
    /// Its IOMMU group, if VFIO reports it.
    pub(crate) group: Option<u32>,
    /// `true` if it is this process's already.
    pub(crate) owned: bool,
}

/// The kind of reset that a function got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Alone,
    WithBus,
}

/// Resets the function at `address`. If it could not be reset in either way, why.
pub(crate) fn reset(
    function: &impl Resettable,
    sysfs: &Path,
    address: PciAddress,
) -> Result<How, (io::Error, HotResetError)> {
    let Err(alone) = function.reset_function() else {
        return Ok(How::Alone);
    };
    match hot_reset(function, sysfs, address) {
        Ok(()) => Ok(How::WithBus),
        Err(error) => Err((alone, error)),
    }
}

fn hot_reset(
    function: &impl Resettable,
    sysfs: &Path,
    address: PciAddress,
) -> Result<(), HotResetError> {
    let affected = function
        .affected()
        .map_err(|source| HotResetError::NotOffered { source })?;
    let (own, others): (Vec<_>, Vec<_>) =
        affected.into_iter().partition(|one| one.address == address);
    // Groups that are this process's.
    let mut groups: Vec<u32> = own.iter().filter_map(|one| one.group).collect();
    let mut claims = Vec::new();
    let mut in_the_way = Vec::new();
    for other in others {
        let path = sysfs
            .join("bus/pci/devices")
            .join(other.address.to_string());
        let driver = sysfs::link_name(&path.join("driver")).unwrap_or(None);
        let why = match driver {
            None => Obstacle::NotBound,
            Some(driver) if !sysfs::is_vfio(&driver) => Obstacle::BoundTo(driver),
            Some(_) if other.owned || other.group.is_some_and(|group| groups.contains(&group)) => {
                continue;
            }
            Some(_) => match function.claim(&path, &other) {
                Ok(claim) => {
                    claims.push(claim);
                    groups.extend(other.group);
                    continue;
                }
                Err(error) => Obstacle::Claim(error),
            },
        };
        let address = other.address;
        in_the_way.push(Neighbour { address, why });
    }
    if !in_the_way.is_empty() {
        return Err(HotResetError::Others(in_the_way));
    }
    function
        .reset_bus(&claims)
        .map_err(|source| HotResetError::Failed { source })
}

/// Length of `struct vfio_pci_hot_reset_info` before its functions, and of each of them.
pub(crate) const INFO_FIXED: usize = 12;
pub(crate) const INFO_EACH: usize = 8;
/// The functions' identifiers are those of an iommufd, not numbers of groups (`VFIO_PCI_HOT_RESET_FLAG_DEV_ID`).
const DEV_ID: u32 = 1 << 0;
/// A function that is not the iommufd's (`VFIO_PCI_DEVID_NOT_OWNED`).
const NOT_OWNED: u32 = u32::MAX;

/// Reads what `VFIO_DEVICE_GET_PCI_HOT_RESET_INFO` answered. What is cut off is left out.
pub(crate) fn parse_info(info: &[u8]) -> Vec<Affected> {
    let word = |at: usize| {
        let bytes = info.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let flags = word(4).unwrap_or(0);
    let count = word(8).unwrap_or(0) as usize;
    let functions = info
        .get(INFO_FIXED..)
        .unwrap_or(&[])
        .chunks_exact(INFO_EACH);
    functions
        .take(count)
        .filter_map(|one| {
            let [a, b, c, d, segment @ .., bus, devfn] = *one.first_chunk::<INFO_EACH>()?;
            let id = u32::from_ne_bytes([a, b, c, d]);
            let domain = u16::from_ne_bytes(segment).into();
            let of_iommufd = flags & DEV_ID != 0;
            Some(Affected {
                address: PciAddress::new(domain, bus, devfn >> 3, devfn & 7)?,
                group: (!of_iommufd).then_some(id),
                owned: of_iommufd && id != NOT_OWNED,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Sysfs;
    use std::cell::RefCell;

    /// A card of two ports on one bus.
    struct Card {
        alone: Result<(), io::ErrorKind>,
        affected: Result<Vec<Affected>, io::ErrorKind>,
        claim: Result<(), io::ErrorKind>,
        bus: Result<(), io::ErrorKind>,
        done: RefCell<Vec<String>>,
    }

    fn affected(group: Option<u32>, owned: bool) -> Vec<Affected> {
        let one = |address: &str, group, owned| Affected {
            address: address.parse().unwrap(),
            group,
            owned,
        };
        vec![
            one("3b:00.0", group.map(|_| 42), true),
            one("3b:00.1", group, owned),
        ]
    }

    impl Card {
        /// A card whose first function cannot be reset alone.
        fn new(affected: Vec<Affected>) -> Self {
            Self {
                alone: Err(io::ErrorKind::InvalidInput),
                affected: Ok(affected),
                claim: Ok(()),
                bus: Ok(()),
                done: RefCell::default(),
            }
        }

        fn reset(&self, sysfs: &Sysfs) -> (Result<How, String>, Vec<String>) {
            let address = "3b:00.0".parse().unwrap();
            let how = reset(self, sysfs.root(), address).map_err(|(_, error)| error.to_string());
            (how, self.done.take())
        }
    }

    impl Resettable for Card {
        type Claim = PciAddress;

        fn reset_function(&self) -> io::Result<()> {
            self.done.borrow_mut().push("alone".into());
            self.alone.map_err(io::Error::from)
        }

        fn affected(&self) -> io::Result<Vec<Affected>> {
            self.affected.clone().map_err(io::Error::from)
        }

        fn claim(&self, path: &Path, other: &Affected) -> io::Result<PciAddress> {
            assert!(path.ends_with(other.address.to_string()));
            self.done
                .borrow_mut()
                .push(format!("claim {}", other.address));
            self.claim.map_err(io::Error::from).map(|()| other.address)
        }

        fn reset_bus(&self, claims: &[PciAddress]) -> io::Result<()> {
            self.done.borrow_mut().push(format!("bus with {claims:?}"));
            self.bus.map_err(io::Error::from)
        }
    }

    /// Both functions, with the second one's driver.
    fn two_ports(driver: Option<&str>) -> Sysfs {
        let sysfs = Sysfs::new();
        for (address, driver) in [("0000:3b:00.0", Some("vfio-pci")), ("0000:3b:00.1", driver)] {
            let nic = sysfs.nic(address);
            if let Some(driver) = driver {
                sysfs.bind(&nic, driver);
            }
        }
        sysfs
    }

    #[test]
    fn a_function_that_can_be_reset_alone_is() {
        let mut card = Card::new(affected(Some(42), false));
        card.alone = Ok(());
        let (how, done) = card.reset(&two_ports(Some("vfio-pci")));
        assert_eq!((how, done), (Ok(How::Alone), vec!["alone".to_string()]));
    }

    #[test]
    fn a_function_whose_own_reset_fails_is_reset_with_its_bus() {
        let sysfs = two_ports(Some("vfio-pci"));
        // In one group; in an iommufd that has both; in a separate group, which has to be claimed.
        for (others, claimed) in [
            (affected(Some(42), false), false),
            (affected(None, true), false),
            (affected(Some(43), false), true),
            (affected(None, false), true),
        ] {
            let (how, done) = Card::new(others).reset(&sysfs);
            assert_eq!(how, Ok(How::WithBus));
            let claim = done.iter().any(|step| step == "claim 0000:3b:00.1");
            assert_eq!(claim, claimed, "{done:?}");
            assert!(done.last().unwrap().starts_with("bus with"), "{done:?}");
        }
    }

    #[test]
    fn the_function_in_the_way_of_a_bus_reset_is_named() {
        for (driver, claim, text) in [
            (None, Ok(()), "0000:3b:00.1, which is not bound to vfio-pci"),
            (
                Some("mlx5_core"),
                Ok(()),
                "0000:3b:00.1, which is bound to mlx5_core",
            ),
            (
                Some("vfio-pci"),
                Err(io::ErrorKind::ResourceBusy),
                "0000:3b:00.1, which a process uses",
            ),
            (
                Some("vfio-pci"),
                Err(io::ErrorKind::PermissionDenied),
                "0000:3b:00.1, which cannot be claimed: permission denied",
            ),
        ] {
            let mut card = Card::new(affected(Some(43), false));
            card.claim = claim;
            let (how, done) = card.reset(&two_ports(driver));
            let error = how.unwrap_err();
            assert!(error.contains(text), "{error}");
            // The other port was not reset.
            assert!(!done.iter().any(|step| step.starts_with("bus")), "{done:?}");
        }
    }

    #[test]
    fn a_bus_that_cannot_be_reset_is_said_so() {
        let sysfs = two_ports(Some("vfio-pci"));
        let mut card = Card::new(affected(Some(42), false));
        card.bus = Err(io::ErrorKind::ResourceBusy);
        let error = card.reset(&sysfs).0.unwrap_err();
        assert!(
            error.contains("the reset of its bus or slot failed"),
            "{error}"
        );
        card.affected = Err(io::ErrorKind::NotFound);
        let error = card.reset(&sysfs).0.unwrap_err();
        assert!(error.contains("cannot reset its bus or slot"), "{error}");
    }

    fn info(flags: u32, count: u32, functions: &[(u32, u16, u8, u8)]) -> Vec<u8> {
        let mut info = Vec::new();
        for word in [0, flags, count] {
            info.extend(word.to_ne_bytes());
        }
        for &(id, segment, bus, devfn) in functions {
            info.extend(id.to_ne_bytes());
            info.extend(segment.to_ne_bytes());
            info.extend([bus, devfn]);
        }
        info
    }

    #[test]
    fn what_the_kernel_says_of_a_bus_is_read() {
        let two = [(42, 0, 0x3b, 0), (43, 0, 0x3b, 1)];
        let mut expected = affected(Some(43), false);
        expected[0].owned = false;
        assert_eq!(parse_info(&info(0, 2, &two)), expected);
        // Of an iommufd: its own, one of a separate group, one that is not.
        let three = [(7, 1, 2, 8), (0, 1, 2, 9), (u32::MAX, 1, 2, 10)];
        let found = parse_info(&info(3, 3, &three));
        let found: Vec<_> = found.iter().map(|one| (one.group, one.owned)).collect();
        assert_eq!(found, [(None, true), (None, true), (None, false)]);
        // More are announced than there are, or none.
        assert_eq!(parse_info(&info(0, u32::MAX, &two)).len(), 2);
        assert_eq!(parse_info(&info(0, 0, &two)), []);
        assert_eq!(parse_info(&[0; 11]), []);
    }
}
