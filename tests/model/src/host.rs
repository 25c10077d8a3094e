//! The model's interface to its environment: the host's memory, the interrupt lines, and the cable.

/// A DMA access to an address that nothing is mapped at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("IOMMU fault: {} of {len} bytes at {iova:#x}", if *write { "write" } else { "read" })]
pub struct IommuFault {
    /// The device's address.
    pub iova: u64,
    /// Length of the access in bytes.
    pub len: usize,
    /// `true` if the device wanted to write.
    pub write: bool,
}

/// The environment that a model reaches from inside: called by it, implemented around it.
///
/// DMA goes only through mapped ranges; an access outside them is an [`IommuFault`] that the host records for the test to
/// see. Accesses that cross a mapping's end fault as a whole.
pub trait Host {
    /// Reads the host's memory.
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault>;

    /// Writes the host's memory, lowest address first; what `data` ends with is visible last.
    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault>;

    /// Raises MSI-X vector `vector` (the function's mask bits were looked at already).
    fn interrupt(&mut self, vector: u16);

    /// Puts an Ethernet frame (without frame check sequence) on the cable.
    fn transmit(&mut self, frame: &[u8]);

    /// The same for a frame in a buffer of its own, which the host may keep if it leaves another one, with whatever content.
    fn hand_over(&mut self, frame: &mut Vec<u8>) {
        self.transmit(frame);
    }
}
