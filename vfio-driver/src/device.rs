//! The device: everything the driver needs of Linux, in one value.

// UNSAFETY: implements the platform seam, whose methods pass raw memory on.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use bareverbs_core::HealthBuffer;
use bareverbs_core::firmware_cmds::init_segment::{FW_REV, HEALTH, VANISHED};
use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform, VectorSet};

use crate::address::PciAddress;
use crate::bar::Bar;
use crate::config::{
    COMMAND, COMMAND_BUS_MASTER, COMMAND_INTX_DISABLE, COMMAND_MEMORY, ConfigSpace,
};
use crate::dma::DmaMemory;
use crate::error::OpenError;
use crate::event_channel::EventChannel;
use crate::interface::Interface;
use crate::interrupts::Interrupts;
use crate::iommu_info::IommuInfo;
use crate::iova::IovaSpace;
use crate::limits::Limits;
use crate::removal::{Removal, Removals};
use crate::reset;
use crate::sys::{AddressSpace, Function};
use crate::sysfs;

const SYSFS: &str = "/sys";

/// The settings with which a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The most MSI-X vectors that are wanted; 0 for a driver that polls, and that never sleeps.
    pub vectors: u16,
    /// Through which of VFIO's interfaces.
    pub interface: Interface,
}

impl Default for Options {
    /// Polling.
    fn default() -> Self {
        Self::with_vectors(0)
    }
}

impl Options {
    /// With up to `vectors` MSI-X vectors.
    pub fn with_vectors(vectors: u16) -> Self {
        Self {
            vectors,
            interface: Interface::Auto,
        }
    }

    /// The same through this interface.
    #[must_use]
    pub fn through(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }
}

/// A PCI function that this process drives through VFIO.
///
/// The function is reset when it is opened and when it is dropped; it has no other user in between, and it reaches no
/// memory but what was allocated or mapped here.
///
/// # When the function is lost
///
/// A function that is pulled out of its slot reads all ones. When the kernel requests it back in an orderly way (hot
/// unplug, unbinding), or reports a bus error, registers read all ones here as well ([`removal`](Self::removal) says
/// which it was), so that every user of the function gets the error "gone". The kernel waits until this value is
/// dropped.
///
/// From a function that fell off the bus, without the kernel's knowledge, waiters get their error at once; but the end of
/// the process takes a minute longer, for which the kernel waits until it has reset the function on its own.
///
/// A function whose memory decoding the kernel turned off without vfio-pci's knowledge raises `SIGBUS`.
pub struct VfioDevice {
    address: PciAddress,
    device_id: u16,
    group: u32,
    info: IommuInfo,
    started: Instant,
    // In the order of their end. What maps or duplicates the function's file goes before the function, or its group
    // stays busy; memory is unmapped while the group is still in the container, or there is nothing to unmap it from.
    bar: Bar,
    config: ConfigSpace,
    dma: DmaMemory<AddressSpace>,
    function: Function,
    interrupts: Interrupts,
    removals: Removals,
}

impl fmt::Debug for VfioDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioDevice")
            .field("address", &self.address)
            .field("device_id", &self.device_id)
            .field("vectors", &self.interrupts.len())
            .finish_non_exhaustive()
    }
}

impl VfioDevice {
    /// Opens the function at `address` for polling.
    pub fn open(address: PciAddress) -> Result<Self, OpenError> {
        Self::open_with(address, Options::default())
    }

    /// Opens the function at `address`.
    ///
    /// It has to be bound to vfio-pci, with all other functions of its IOMMU group bound to vfio-pci or to nothing.
    pub fn open_with(address: PciAddress, options: Options) -> Result<Self, OpenError> {
        let interface = options.interface.or_environment();
        let interface = interface.map_err(OpenError::Interface)?;
        let candidate = sysfs::examine(Path::new(SYSFS), address)?;
        let function = Function::open(&candidate, interface)?;
        let info = function.iommu_info()?;
        log::debug!("{address}: group {}, {info:x?}", candidate.group);

        look_back(&function, address);
        // Whatever another process has left behind is gone after this. A reset takes a tenth of a second (PCI Express Base
        // Specification, FLR), so there is one.
        let reset = match function.was_reset() {
            true => Ok(reset::How::Alone),
            false => reset::reset(&function, Path::new(SYSFS), address),
        };
        match reset {
            Ok(reset::How::Alone) => {}
            Ok(reset::How::WithBus) => {
                log::warn!("{address} cannot be reset alone, and was reset with its bus or slot");
            }
            Err((alone, with_bus)) => {
                return Err(OpenError::NotReset {
                    address,
                    alone,
                    with_bus,
                });
            }
        }
        let config = function.config()?;
        let read = |source| OpenError::Os {
            step: "read the PCI configuration space",
            source,
        };
        if config.read_u16(0).map_err(read)? == u16::MAX {
            return Err(OpenError::Gone { address });
        }
        let space = IovaSpace::new(&info.usable, info.granule);
        let device = Self {
            address,
            device_id: candidate.device,
            group: candidate.group,
            started: Instant::now(),
            bar: function.bar(info.granule)?,
            config,
            dma: DmaMemory::new(function.space().clone(), space, info.granule),
            interrupts: Interrupts::new(0).map_err(|source| OpenError::Os {
                step: "create the interrupts' events",
                source,
            })?,
            removals: Removals::new().map_err(|source| OpenError::Os {
                step: "create the removal's events",
                source,
            })?,
            info,
            function,
        };
        // From here on, `Drop` undoes what was done.
        for removal in [Removal::Requested, Removal::BusError] {
            device
                .function
                .watch(removal, device.removals.event(removal))?;
        }
        device.enable()?;
        device.with_vectors(options.vectors)
    }

    /// Lets the function decode its BAR and do DMA, and keeps it from asserting INTx: vfio-pci enables INTx when it opens a
    /// function, event queues are created armed, and a function with MSI-X off raises their interrupts by INTx. With MSI-X
    /// on, the bit means nothing.
    fn enable(&self) -> Result<(), OpenError> {
        let wanted = COMMAND_MEMORY | COMMAND_BUS_MASTER;
        let value = self
            .config
            .update_u16(COMMAND, wanted | COMMAND_INTX_DISABLE, 0)
            .map_err(|source| OpenError::Os {
                step: "enable bus mastering",
                source,
            })?;
        if value == u16::MAX {
            return Err(OpenError::Gone {
                address: self.address,
            });
        }
        if value & wanted != wanted {
            return Err(OpenError::CommandRegister { value });
        }
        Ok(())
    }

    fn with_vectors(mut self, wanted: u16) -> Result<Self, OpenError> {
        if wanted == 0 {
            return Ok(self);
        }
        let present = self.function.msix_vectors();
        if present == 0 {
            return Err(OpenError::NoMsix);
        }
        // At most what was asked for, which was a 16-bit number.
        let count = u32::from(wanted).min(present) as u16;
        self.interrupts = Interrupts::new(count).map_err(|source| OpenError::Os {
            step: "create the interrupts' events",
            source,
        })?;
        // All at once: a vector cannot be added later without taking the others away for a moment.
        self.function
            .enable_msix(self.interrupts.events().iter().collect())?;
        Ok(self)
    }

    /// Where the function is.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// The PCI device ID, which names the model: `0x1017` is a ConnectX-5.
    pub fn device_id(&self) -> u16 {
        self.device_id
    }

    /// The properties of the function in VFIO.
    pub fn limits(&self) -> Limits {
        Limits {
            cdev: self.function.space().is_iommufd(),
            group: self.group,
            granule: self.info.granule,
            usable: self.info.usable.clone(),
            mappings: self.info.mappings,
            bar_len: self.bar.len(),
            msix_vectors: self.function.msix_vectors(),
            vectors: self.interrupts.len(),
        }
    }

    /// A descriptor that becomes readable when one of these MSI-X vectors is raised, when a deadline passes, or when the
    /// function is lost: for programs with an event loop of their own. Any number of them may be made, and each sees every
    /// interrupt.
    pub fn event_channel(&self, vectors: VectorSet) -> io::Result<EventChannel> {
        EventChannel::new(&self.interrupts, vectors, &self.removals, self.started)
    }

    /// The function's file and the offset in it where a range of BAR 0 can be mapped (`mmap`), if vfio-pci lets it be: for
    /// doorbell pages that code outside this driver writes to.
    pub fn mappable_registers(&self, range: &Range<usize>) -> Option<(BorrowedFd<'_>, u64)> {
        self.bar.mappable(range)
    }

    /// The reason for which the function was lost. A function that simply fell off the bus has none.
    pub fn removal(&self) -> Option<Removal> {
        self.removals.look()
    }

    /// Reads `data.len()` bytes of PCI configuration space: all of them, or it is an error.
    pub fn read_config(&self, offset: u16, data: &mut [u8]) -> io::Result<()> {
        self.config.read(offset, data)
    }

    /// Writes bytes of PCI configuration space. vfio-pci decides which registers a process may change.
    pub fn write_config(&self, offset: u16, data: &[u8]) -> io::Result<()> {
        self.config.write(offset, data)
    }
}

/// Logs what the last user left in the health buffer, as far as the reset by vfio-pci at the opening keeps it. This comes before
/// the driver's own reset.
fn look_back(function: &Function, address: PciAddress) {
    let read = || {
        let config = function.config().map_err(io::Error::other)?;
        config.update_u16(COMMAND, COMMAND_MEMORY, 0)?;
        let registers = function.registers()?;
        // A function that is not there has no health buffer.
        if registers.read_be32(FW_REV) == VANISHED {
            return Ok(HealthBuffer::ZERO);
        }
        let at: [usize; 16] = std::array::from_fn(|index| HEALTH + 4 * index);
        let health = HealthBuffer::from_registers(at.map(|at| registers.read_be32(at)));
        io::Result::Ok(health)
    };
    match read() {
        Ok(health) if health.is_gone() || !health.has_problem() => {}
        Ok(health) => log::warn!("{address} was left with a problem: {health}"),
        Err(error) => log::debug!("{address}: the health buffer was not read: {error}"),
    }
}

impl Drop for VfioDevice {
    /// Stops the function, then closes it in the order of the fields.
    fn drop(&mut self) {
        // No DMA any more, and no interrupts, which are writes as well.
        let command = self
            .config
            .update_u16(COMMAND, 0, COMMAND_BUS_MASTER)
            .unwrap_or_else(|error| {
                log::warn!(
                    "{}: bus mastering could not be disabled: {error}",
                    self.address
                );
                0
            });
        if self.interrupts.len() != 0 {
            self.function.disable_msix();
        }
        for removal in [Removal::Requested, Removal::BusError] {
            self.function.unwatch(removal);
        }
        // What the firmware knew of queues and pages is gone before their memory is. A function that has left the bus has
        // nothing to forget, and the kernel would wait a minute for it to come back. One that the kernel has reset after a
        // bus error decodes no addresses, and vfio-pci answers an access to its registers by SIGBUS.
        if command & COMMAND_MEMORY != 0 && self.bar.read_be32(0) == u32::MAX {
            log::debug!("{} is gone and was not reset", self.address);
        } else if let Err((alone, with_bus)) =
            reset::reset(&self.function, Path::new(SYSFS), self.address)
        {
            log::debug!("{} was not reset: {alone}; {with_bus}", self.address);
        }
    }
}

// SAFETY: registers are single volatile accesses to the mapped BAR, in program order (`bar.rs`), and outside the BAR
// nothing is touched. DMA memory is the caller's alone, mapped at the address that is reported, zeroed and aligned for
// both (`dma.rs`), and stays until it is freed. The clock is monotonic.
unsafe impl Platform for VfioDevice {
    // `WRITE_COMBINING` stays `false`: vfio-pci lets BARs be mapped uncached only (`vfio_pci_core_mmap`), prefetchable ones
    // as well.

    #[inline]
    fn bar_len(&self) -> usize {
        self.bar.len()
    }

    fn read_be32(&self, offset: usize) -> u32 {
        // Registers are read rarely, and on most machines a read takes longer than this look.
        if self.removals.look().is_some() {
            return u32::MAX;
        }
        self.bar.read_be32(offset)
    }

    #[inline]
    fn write_be32(&self, offset: usize, value: u32) {
        self.bar.write_be32(offset, value);
    }

    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        self.bar.write_be64(offset, value);
    }

    fn device_id(&self) -> Option<u16> {
        Some(self.device_id)
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        self.dma.allocate(layout)
    }

    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.dma.free(dma) }
    }

    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.dma.map(region) }
    }

    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        DmaMemory::<AddressSpace>::page_iova(mapping, index)
    }

    unsafe fn dma_unmap(&self, mapping: Mapping) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.dma.unmap(&mapping) }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    #[inline]
    fn relax(&self) {
        std::hint::spin_loop();
    }

    fn interrupt_vectors(&self) -> u16 {
        self.interrupts.len()
    }

    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        if self.interrupts.len() == 0 {
            self.relax();
            return true;
        }
        // A deadline too far to be a time of this clock is an hour; the caller's loop waits again.
        let deadline = self
            .started
            .checked_add(deadline)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        self.interrupts.wait(vectors, &self.removals, deadline)
    }

    fn wake(&self) -> bool {
        self.interrupts.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_is_not_there_is_said_so() {
        // No machine has a domain this high.
        let address: PciAddress = "fffffff0:ff:1f.7".parse().unwrap();
        let error = VfioDevice::open(address).unwrap_err();
        assert!(matches!(error, OpenError::NoSuchDevice { .. }), "{error}");
    }

    #[test]
    fn the_device_is_shared_between_threads() {
        fn is_send_and_sync<T: Send + Sync>() {}
        is_send_and_sync::<VfioDevice>();
    }
}
