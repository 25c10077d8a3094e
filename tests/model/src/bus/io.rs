//! The device's way out: DMA and interrupts as PCI lets them through.

use crate::bus::pci::Pci;
use crate::host::{Host, IommuFault};

/// Host and PCI function for the time of one call.
pub(crate) struct Io<'a> {
    host: &'a mut dyn Host,
    pci: &'a mut Pci,
    faults: &'a mut u64,
    lose_interrupts: bool,
}

impl<'a> Io<'a> {
    pub(crate) fn new(
        host: &'a mut dyn Host,
        pci: &'a mut Pci,
        faults: &'a mut u64,
        lose_interrupts: bool,
    ) -> Self {
        Self {
            host,
            pci,
            faults,
            lose_interrupts,
        }
    }

    fn blocked(&mut self, iova: u64, len: usize, write: bool) -> IommuFault {
        *self.faults += 1;
        log::warn!("DMA to {iova:#x} with bus mastering off");
        IommuFault { iova, len, write }
    }

    pub(crate) fn read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        if !self.pci.bus_master() {
            return Err(self.blocked(iova, data.len(), false));
        }
        self.host.dma_read(iova, data).inspect_err(|fault| {
            *self.faults += 1;
            log::warn!("{fault}");
        })
    }

    pub(crate) fn write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        if !self.pci.bus_master() {
            return Err(self.blocked(iova, data.len(), true));
        }
        self.host.dma_write(iova, data).inspect_err(|fault| {
            *self.faults += 1;
            log::warn!("{fault}");
        })
    }

    pub(crate) fn read_be32(&mut self, iova: u64) -> Result<u32, IommuFault> {
        let mut word = [0; 4];
        self.read(iova, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Raises an MSI-X vector, if table and masks let it.
    pub(crate) fn interrupt(&mut self, vector: u16) {
        if !self.lose_interrupts && self.pci.raise(vector) {
            self.host.interrupt(vector);
        }
    }

    pub(crate) fn transmit(&mut self, frame: &[u8]) {
        self.host.transmit(frame);
    }

    pub(crate) fn hand_over(&mut self, frame: &mut Vec<u8>) {
        self.host.hand_over(frame);
    }
}
