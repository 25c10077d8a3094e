//! Losing the function while it is driven: VFIO's two events that say so.
//!
//! The kernel cannot take a function away from a process. When it is to leave (hot unplug, `unbind`), it raises the
//! device-request event, again and again, and waits until the process closes it; the caller that removes it waits as
//! long. When PCI error handling finds the link or the function broken, it raises the error event. Both end this
//! driver's use of the function: from then on every register reads all ones, which is what "gone" looks like to the
//! layers above, and every thread that waits for an interrupt is woken.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Why a function was lost ([`VfioDevice::removal`](crate::VfioDevice::removal)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Removal {
    /// The kernel requests it back: it is being unplugged, or unbound from vfio-pci. It waits until the device is
    /// dropped.
    Requested = 1,
    /// PCI error handling reported an uncorrectable error.
    BusError = 2,
}

impl std::fmt::Display for Removal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Requested => {
                "the kernel requests the function back: it is being unplugged or unbound"
            }
            Self::BusError => "the PCI bus reported an uncorrectable error of the function",
        })
    }
}

/// Both events, and what came of them.
pub(crate) struct Removals {
    requested: EventFd,
    bus_error: EventFd,
    /// 0, or the [`Removal`] that came first.
    state: AtomicU8,
}

impl Removals {
    pub(crate) fn new() -> io::Result<Self> {
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        Ok(Self {
            requested: event()?,
            bus_error: event()?,
            state: AtomicU8::new(0),
        })
    }

    /// The event that the kernel raises for a reason.
    pub(crate) fn event(&self, removal: Removal) -> &EventFd {
        match removal {
            Removal::Requested => &self.requested,
            Removal::BusError => &self.bus_error,
        }
    }

    /// The event that the kernel raises, for every reason.
    pub(crate) fn events(&self) -> [&EventFd; 2] {
        [&self.requested, &self.bus_error]
    }

    /// Looks whether the function is lost: two system calls, unless it is.
    #[cold]
    pub(crate) fn look(&self) -> Option<Removal> {
        if let Some(known) = self.known() {
            return Some(known);
        }
        for removal in [Removal::Requested, Removal::BusError] {
            let event = self.event(removal);
            if event.read().is_ok() {
                // It stays raised, for all who wait for it.
                if let Err(error) = event.write(1) {
                    log::error!("an event could not be raised again: {error}");
                }
                let first = self.state.compare_exchange(
                    0,
                    removal as u8,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if first.is_ok() {
                    log::error!("{removal}");
                }
                return self.known();
            }
        }
        None
    }

    fn known(&self) -> Option<Removal> {
        match self.state.load(Ordering::Relaxed) {
            1 => Some(Removal::Requested),
            2 => Some(Removal::BusError),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let removals = Removals::new().unwrap();
        assert_eq!(removals.look(), None);
        removals.event(Removal::BusError).write(1).unwrap();
        assert_eq!(removals.look(), Some(Removal::BusError));
        removals.event(Removal::Requested).write(1).unwrap();
        assert_eq!(removals.look(), Some(Removal::BusError));
    }

    #[test]
    fn the_event_stays_raised_for_those_who_wait() {
        let removals = Removals::new().unwrap();
        removals.event(Removal::Requested).write(1).unwrap();
        assert_eq!(removals.look(), Some(Removal::Requested));
        assert!(removals.event(Removal::Requested).read().is_ok());
    }
}
