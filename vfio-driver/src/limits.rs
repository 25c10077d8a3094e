//! The properties of a function in VFIO, as reports print them.

use std::fmt;
use std::ops::RangeInclusive;

/// Interface, address space and interrupts of a [`VfioDevice`](crate::VfioDevice).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// True if the function was opened through its own device file and an iommufd, false if through its group and a container.
    pub cdev: bool,
    /// Number of its IOMMU group.
    pub group: u32,
    /// The smallest page that can be mapped.
    pub granule: u64,
    /// Device addresses that may be used; empty if the kernel does not say.
    pub usable: Vec<RangeInclusive<u64>>,
    /// Mappings that were left when the function was opened, if the kernel says.
    pub mappings: Option<u32>,
    /// Bytes of BAR 0.
    pub bar_len: usize,
    /// MSI-X vectors of the function.
    pub msix_vectors: u32,
    /// Those that are in use.
    pub vectors: u16,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = if self.cdev {
            "cdev and iommufd"
        } else {
            "group and container"
        };
        writeln!(f, "interface: {interface}")?;
        writeln!(f, "group: {}", self.group)?;
        writeln!(f, "granule: {:#x}", self.granule)?;
        for range in &self.usable {
            writeln!(f, "usable: {:#x}-{:#x}", range.start(), range.end())?;
        }
        if let Some(mappings) = self.mappings {
            writeln!(f, "mappings left: {mappings}")?;
        }
        writeln!(f, "bar size: {:#x}", self.bar_len)?;
        writeln!(f, "msix vectors: {}", self.msix_vectors)?;
        writeln!(f, "vectors in use: {}", self.vectors)
    }
}
