//! The requests of a vfio-user client to one function.

use crate::world::{Function, World};
use std::fs::File;
use std::io;
use std::sync::Arc;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_TYPE_MASK,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

const CONFIG_SIZE: u64 = 4096;
/// The largest access of a client, as the version exchange states it.
const LONGEST_ACCESS: usize = 1 << 20;
const PCI_COMMAND: usize = 4;

/// The function's regions, as the client gets them. None can be mapped: every doorbell has to come as a message.
pub(crate) fn regions(bar_size: u64) -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => bar_size,
                VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE,
                _ => 0,
            };
            let flags = match size {
                0 => 0,
                _ => VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
            };
            ServerRegion {
                region_info: vfio_region_info {
                    argsz: size_of::<vfio_region_info>() as u32,
                    flags,
                    index,
                    cap_offset: 0,
                    size,
                    offset: 0,
                },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        })
        .collect()
}

/// The function's interrupts, as the client gets them: MSI-X only.
pub(crate) fn irqs(vectors: u16) -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
                index,
                flags: VFIO_IRQ_INFO_EVENTFD,
                count: u32::from(vectors),
            },
            _ => IrqInfo {
                index,
                flags: 0,
                count: 0,
            },
        })
        .collect()
}

/// One client's view of one function.
pub(crate) struct Backend {
    world: Arc<World>,
    index: usize,
    bar_size: u64,
}

impl Backend {
    pub(crate) fn new(world: Arc<World>, index: usize, bar_size: u64) -> Self {
        Self {
            world,
            index,
            bar_size,
        }
    }

    /// Where an access goes; `None` if it is to nothing, or reaches beyond the end.
    fn target(&self, region: u32, offset: u64, len: usize) -> Option<Target> {
        let (target, size) = match region {
            VFIO_PCI_BAR0_REGION_INDEX => (Target::Bar, self.bar_size),
            VFIO_PCI_CONFIG_REGION_INDEX => (Target::Config, CONFIG_SIZE),
            _ => return None,
        };
        let end = offset.checked_add(len as u64)?;
        (end <= size).then_some(target)
    }

    fn with<R>(&self, f: impl FnOnce(&mut Function) -> R) -> R {
        self.world.with(self.index, f)
    }

    /// The client is gone, and with it its memory and its interrupts; the next one finds the function reset.
    pub(crate) fn disconnect(&self) {
        self.with(|function| {
            function.model.function_reset();
            function
                .model
                .config_write(&mut function.port, PCI_COMMAND, &[0, 0]);
            function.port.clear_vectors();
            function.port.memory.clear();
        });
    }
}

/// The region that a client accesses.
enum Target {
    Bar,
    Config,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if data.len() > LONGEST_ACCESS {
            return Err(invalid("more than a message may carry"));
        }
        match self.target(region, offset, data.len()) {
            Some(Target::Bar) => self.with(|Function { model, port }| {
                model.bar_read(port, offset, data);
                log::trace!("read BAR0 {offset:#x}: {data:02x?}");
            }),
            Some(Target::Config) => self.with(|Function { model, .. }| {
                model.config_read(offset as usize, data);
                log::trace!("read config {offset:#x}: {data:02x?}");
            }),
            // A refused read would hang clients that do not look at the reply's error.
            None => {
                let len = data.len();
                log::warn!("read of {len} bytes of region {region} at {offset:#x}");
                data.fill(0xff);
            }
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.target(region, offset, data.len()) {
            Some(Target::Bar) => self.with(|Function { model, port }| {
                log::trace!("write BAR0 {offset:#x}: {data:02x?}");
                model.bar_write(port, offset, data);
            }),
            Some(Target::Config) => self.with(|Function { model, port }| {
                log::trace!("write config {offset:#x}: {data:02x?}");
                model.config_write(port, offset as usize, data);
            }),
            None => {
                let len = data.len();
                log::warn!("write of {len} bytes to region {region} at {offset:#x}");
            }
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        log::debug!("DMA map {address:#x} + {size:#x} to {offset:#x} of {fd:?}");
        self.with(|function| {
            function.port.memory.map(
                address,
                size,
                fd.as_ref().map(|file| (file, offset)),
                flags.contains(DmaMapFlags::READ),
                flags.contains(DmaMapFlags::WRITE),
            )
        })
        .inspect_err(|error| {
            log::error!("DMA map of {size:#x} bytes at {address:#x}: {error}");
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        log::debug!("DMA unmap {address:#x} + {size:#x}");
        self.with(|function| {
            if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
                function.port.memory.clear();
            } else if function.port.memory.unmap(address, size) == 0 {
                // Clients behind an IOMMU clear all of the address space in large pieces when a mapping mode ends.
                log::debug!("DMA unmap of {size:#x} bytes at {address:#x}, where nothing is");
            }
        });
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        log::info!("function {}: reset", self.index);
        self.with(|function| function.model.function_reset());
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        log::debug!(
            "set interrupts {index}: flags {flags:#x}, {count} from {start}, {} descriptors",
            fds.len()
        );
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            // Clients switch off what was never on.
            return if count == 0 {
                Ok(())
            } else {
                Err(invalid("the function has MSI-X only"))
            };
        }
        if flags & VFIO_IRQ_SET_ACTION_TYPE_MASK != VFIO_IRQ_SET_ACTION_TRIGGER {
            return Err(invalid("MSI-X vectors are masked in their table"));
        }
        self.with(|Function { port, .. }| {
            let (first, count) = (start as usize, count as usize);
            if first
                .checked_add(count)
                .is_none_or(|end| end > port.vectors())
            {
                return Err(invalid("there are not so many vectors"));
            }
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                // A vector whose descriptor is -1 arrives without one.
                if !fds.is_empty() && fds.len() != count {
                    return Err(invalid("one descriptor per vector, or none"));
                }
                let mut fds = fds.into_iter();
                for vector in first..first + count {
                    port.set_vector(vector, fds.next());
                }
            } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
                if count == 0 {
                    port.clear_vectors();
                }
                for vector in first..first + count {
                    connectx_model::Host::interrupt(port, vector as u16);
                }
            } else {
                return Err(invalid("unknown kind of interrupt data"));
            }
            Ok(())
        })
    }
}
