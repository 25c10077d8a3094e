//! Events: an event queue for the completions of the programs' CQs, and channels, which are pipes.

// UNSAFETY: the ring of the event queue, and descriptors.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU8, Ordering};

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::doorbell::{self, EqDoorbell};
use bareverbs_node::verbs::firmware_cmds::eq::{CreateEqIn, Eqe};
use bareverbs_node::verbs::firmware_cmds::event::{EQE_SIZE, EqeOwner, Event, owner_of_pass};
use bareverbs_node::verbs::firmware_cmds::numbers::Eqn;
use bareverbs_node::verbs::firmware_cmds::uar::AllocUarIn;
use bareverbs_node::verbs::firmware_cmds::word::Word;
use bareverbs_node::verbs::platform::Dma;
use bareverbs_node::verbs::{Device, Platform, TailIn};
use libc::c_int;

use crate::attrs::Result;

const LOG_SIZE: u8 = 12;
const PAGE: usize = 4096;

/// An event queue of completions, with the interrupt that all events have.
pub(crate) struct EventQueue<'d> {
    device: &'d Device<'d, P>,
    memory: Dma,
    /// Entries read, running freely.
    consumer: u32,
    uar: u32,
    pub(crate) eqn: Eqn,
}

impl<'d> EventQueue<'d> {
    pub(crate) fn create(device: &'d Device<'d, P>) -> Result<Self, String> {
        let len = EQE_SIZE << LOG_SIZE;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let layout = Layout::from_size_align(len, PAGE).map_err(|error| text(&error))?;
        let memory = device.platform().dma_alloc(layout);
        let memory = memory.map_err(|error| text(&error))?;
        for entry in 0..1 << LOG_SIZE {
            let at = entry * EQE_SIZE + EqeOwner::OFFSET;
            // SAFETY: inside the ring, which the device does not have yet.
            unsafe { memory.ptr.add(at).write(EqeOwner::INIT.0) };
        }
        let uar = device.execute(&AllocUarIn::new());
        let uar = uar.map_err(|error| text(&error))?.uar();
        let mut create = CreateEqIn::new();
        let context = create.eq_context_entry_mut();
        context.set_log_eq_size(LOG_SIZE).set_uar_page(uar);
        let mut page = |index: usize| memory.iova + (index * PAGE) as u64;
        let tail = TailIn::Qwords(len / PAGE, &mut page);
        let created = device.execute_with(&create, tail, &mut []);
        let eqn = Eqn(created.map_err(|error| text(&error))?.eq_number());
        let created = Self {
            device,
            memory,
            consumer: 0,
            uar,
            eqn,
        };
        created.arm();
        Ok(created)
    }

    /// The next event that was not read yet.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let at = (self.consumer as usize & ((1 << LOG_SIZE) - 1)) * EQE_SIZE;
        let mut entry = Eqe::ZERO;
        // SAFETY: inside the ring. The device writes the last byte last, and not again before it is told of the consumer.
        unsafe {
            let owner = self.memory.ptr.add(at + EqeOwner::OFFSET);
            let owner = AtomicU8::from_ptr(owner.as_ptr()).load(Ordering::Acquire);
            if owner & 1 != owner_of_pass(self.consumer, LOG_SIZE) {
                return None;
            }
            let from = self.memory.ptr.add(at);
            std::ptr::copy_nonoverlapping(from.as_ptr(), entry.0.as_mut_ptr(), EQE_SIZE);
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(Event::parse(&entry))
    }

    /// Tells the device what was read, and asks for an interrupt when there is more.
    pub(crate) fn arm(&self) {
        let bell = self.uar as usize * doorbell::UAR_SIZE + doorbell::EQ_ARM;
        let value = EqDoorbell::new(self.eqn, self.consumer).0;
        self.device.platform().write_be32(bell, value);
    }
}

/// A queue of events whose other end is a descriptor of the program's.
pub(crate) struct Channel {
    to: File,
    /// The program's end once more, which does not wait.
    from: File,
}

impl Channel {
    /// A channel, and the program's descriptor.
    pub(crate) fn new() -> Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: it has room for both.
        let done = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if done != 0 {
            return Err(libc::EMFILE);
        }
        // SAFETY: they were made for this.
        let [from, to] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // Opened again: the program's descriptor waits as the program has it.
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let again = options.open(format!("/proc/self/fd/{}", from.as_raw_fd()));
        let again = again.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        // SAFETY: the descriptor is open. It is this end's flag only.
        unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let channel = Self {
            to: to.into(),
            from: again,
        };
        Ok((channel, from))
    }

    /// Sends an event; false if there is no room.
    pub(crate) fn send(&self, event: &[u8]) -> bool {
        matches!((&self.to).write(event), Ok(len) if len == event.len())
    }

    /// Takes the events out that begin with this handle, of `N` bytes each; how many there were.
    pub(crate) fn remove<const N: usize>(&self, user_handle: u64) -> u32 {
        let mut waiting: c_int = 0;
        // SAFETY: the number can be written.
        unsafe { libc::ioctl(self.from.as_raw_fd(), libc::FIONREAD, &mut waiting) };
        let mut removed = 0;
        for _ in 0..waiting as usize / N {
            let mut found = [0; N];
            if (&self.from).read_exact(&mut found).is_err() {
                break;
            }
            if found.starts_with(&user_handle.to_ne_bytes()) {
                removed += 1;
            } else {
                self.send(&found);
            }
        }
        removed
    }
}
