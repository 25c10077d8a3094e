//! The device: the one object that everything else borrows.

use core::alloc::Layout;

use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::numbers::{Eqn, Pdn, UarIndex};

use crate::capabilities::Capabilities;
use crate::config::{Config, Storage};
use crate::dma::{DmaBuffer, DmaMemory};
use crate::error::{CloseError, CommandError, DeviceError, OpenError};
use crate::gid::{Gid, GidEntry, GidError, RoceVersion};
use crate::pages::PageChunk;
use crate::platform::{DmaError, Platform};
use crate::port::PortAttr;
use crate::slots::Tables;

/// What follows the fixed part of a command's input.
pub enum TailIn<'a> {
    /// Nothing.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many big-endian qwords (page or translation lists), asked for one by one as they are written.
    Qwords(usize, &'a mut dyn FnMut(usize) -> u64),
}

/// An mlx5 function that was brought up.
///
/// All methods take `&self`: the control path (commands, events) sits behind one lock inside, which the data path never
/// takes. Objects borrow the device, so it cannot be closed before they are gone.
pub struct Device<'s, P: Platform> {
    platform: P,
    config: Config,
    page_chunks: &'s [PageChunk],
    /// The slots of QPs, CQs and SRQs.
    pub(crate) tables: Tables<'s>,
    capabilities: Capabilities,
    uar: UarIndex,
    /// The device's default protection domain, and how many hold it.
    pub(crate) default_pd: spin::Mutex<DefaultPd>,
}

/// The default protection domain of a device.
#[derive(Debug, Default)]
pub(crate) struct DefaultPd {
    /// Its number, while it has users.
    pub(crate) pdn: Option<Pdn>,
    /// How many hold it.
    pub(crate) users: u32,
}

impl<'s, P: Platform> Device<'s, P> {
    /// The platform that it runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// How it was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The UAR page with the doorbells.
    pub(crate) fn uar(&self) -> UarIndex {
        self.uar
    }
}

impl<'s, P: Platform> Device<'s, P> {
    /// Brings the function up from reset. The platform's function must be enabled, mastering the bus, and freshly reset.
    pub fn open(platform: P, config: Config, storage: Storage<'s>) -> Result<Self, OpenError> {
        let _ = (platform, config, storage);
        Err(OpenError {
            step: crate::error::OpenStep::Firmware,
            failure: crate::error::OpenFailure::Device(DeviceError::Gone),
        })
    }

    /// Takes the function down: destroys what bring-up created, gets every page back, disables the function.
    pub fn close(self) -> Result<(), CloseError> {
        Ok(())
    }

    /// Asks for the port's state and attributes.
    pub fn query_port(&self) -> Result<PortAttr, CommandError> {
        self.execute(&bareverbs_firmware_cmds::hca::NopIn::new())
            .map(|_| unreachable!())
    }

    /// Entries of the GID table.
    pub fn gid_table_len(&self) -> usize {
        0
    }

    /// An entry of the GID table; `None` if it is empty or does not exist.
    pub fn port_gid(&self, index: u16) -> Option<GidEntry> {
        let _ = index;
        None
    }

    /// Writes an entry of the GID table.
    pub fn set_gid(&self, index: u16, entry: GidEntry) -> Result<(), GidError> {
        let _ = (index, entry);
        Ok(())
    }

    /// Empties an entry of the GID table.
    pub fn del_gid(&self, index: u16) -> Result<(), GidError> {
        let _ = index;
        Ok(())
    }

    /// The first entry with this GID, encapsulation and VLAN.
    pub fn find_gid(&self, gid: &Gid, version: RoceVersion, vlan: Option<u16>) -> Option<u16> {
        let _ = (gid, version, vlan);
        None
    }

    /// All entries of the GID table that are in use.
    pub fn gid_table(&self) -> impl Iterator<Item = (u16, GidEntry)> + '_ {
        (0..self.gid_table_len() as u16).filter_map(|index| Some((index, self.port_gid(index)?)))
    }

    /// Pages of 4 KiB that the firmware holds.
    pub fn pages_given(&self) -> u32 {
        0
    }

    /// Executes a firmware command without tails and waits for its answer.
    pub fn execute<C: Command>(&self, command: &C) -> Result<C::Output, CommandError> {
        self.execute_with(command, TailIn::None, &mut [])
    }

    /// Executes a firmware command whose input continues with `tail_in` and whose output continues in `tail_out`.
    pub fn execute_with<C: Command>(
        &self,
        command: &C,
        tail_in: TailIn<'_>,
        tail_out: &mut [u8],
    ) -> Result<C::Output, CommandError> {
        let _ = (command, tail_in, tail_out);
        Err(CommandError {
            opcode: C::OPCODE,
            op_mod: 0,
            failure: crate::error::CommandFailure::Device(DeviceError::Gone),
        })
    }

    /// How many firmware commands were executed so far.
    pub fn commands_executed(&self) -> u64 {
        0
    }

    /// Drives the device: command completions, page requests, CQ and asynchronous events; looks at its health now and
    /// then. Call it in every loop.
    pub fn poll(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The next asynchronous event, in order.
    pub fn next_async_event(&self) -> Option<crate::event::AsyncEvent> {
        None
    }

    /// Sleeps until the device raises an interrupt (relaxes once when polling) or until `deadline` on the platform's
    /// clock, then [`poll`](Self::poll)s. Returns whether the deadline has not passed yet.
    pub fn wait(&self, deadline: core::time::Duration) -> Result<bool, DeviceError> {
        self.platform.relax();
        self.poll()?;
        Ok(self.platform.now() < deadline)
    }

    /// Zeroed DMA memory that belongs to an object of this device.
    pub(crate) fn alloc_dma(&self, layout: Layout) -> Result<DmaBuffer<'_, P>, DmaError> {
        Ok(DmaBuffer::new(
            self,
            DmaMemory::alloc(&self.platform, layout)?,
        ))
    }

    /// Keeps memory that the device may still use until the function was torn down.
    pub(crate) fn quarantine(&self, memory: DmaMemory) {
        let _ = memory;
    }

    /// Keeps a mapping of the caller's memory that the device may still use until the function was torn down.
    pub(crate) fn quarantine_mapping(&self, mapping: crate::platform::Mapping) {
        let _ = mapping;
    }

    /// The event queue for completions of vector `vector` (modulo the number of vectors).
    pub(crate) fn completion_eqn(&self, vector: u16) -> Eqn {
        let _ = vector;
        Eqn(0)
    }
}
