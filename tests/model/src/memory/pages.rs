//! The host's pages that hold the firmware's contexts.
//!
//! They are really used: every object's context is written into one of them when the object is made and compared when a
//! command touches the object, and the firmware's own pages carry a pattern. A page that was the wrong one, or that the
//! host took back for itself, therefore shows as a firmware failure, as it would on a card.

use crate::bus::io::Io;
use crate::config::Config;
use crate::syndrome::{Reject, Syndrome};
use std::collections::{BTreeMap, BTreeSet};

/// Size of a page, independent of the host's own page size.
pub(crate) const PAGE: u64 = 4096;
const SLOT: usize = 256;
const SLOTS: u32 = (PAGE as usize / SLOT) as u32;
const PATTERN: u64 = 0x6d6c_7835_6677_7067;

/// Where an object's context lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    page: u64,
    slot: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The firmware's own.
    Firmware,
    /// Contexts; a bit per slot in use.
    Contexts(u16),
}

/// The pages that the host has given.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    held: BTreeMap<u64, Role>,
    /// Context pages with free space, so that an object is placed without a search.
    open: BTreeSet<u64>,
    firmware: u32,
    idle: u32,
    /// Pages asked for by event and not yet given (positive) or not yet taken (negative).
    pub(crate) asked: i32,
    /// Pages that must be there before the next object is made; faults raise it.
    pub(crate) appetite: u32,
    /// Pages of other functions, which this one's driver gives: virtual ones, or the host's. By `embedded_cpu_function` and
    /// number; a function without an entry does not exist.
    pub(crate) others: BTreeMap<(bool, u16), BTreeSet<u64>>,
    /// Another function's driver gives the pages, so that contexts lie where this one's host does not see them.
    elsewhere: bool,
}

/// The bytes of a context's slot.
fn image(kind: u32, number: u32, context: &[u8]) -> [u8; SLOT] {
    let mut image = [0; SLOT];
    image[..8].copy_from_slice(&PATTERN.to_be_bytes());
    image[8..12].copy_from_slice(&kind.to_be_bytes());
    image[12..16].copy_from_slice(&number.to_be_bytes());
    for (to, from) in image[16..].iter_mut().zip(context) {
        *to = *from;
    }
    image
}

impl Pages {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            elsewhere: config.is_virtual(),
            ..Self::default()
        }
    }

    /// Pages held in all.
    pub(crate) fn held(&self) -> usize {
        self.held.len() + self.others.values().map(BTreeSet::len).sum::<usize>()
    }

    /// The firmware's own pages among them.
    pub(crate) fn firmware(&self) -> u32 {
        self.firmware
    }

    /// Context pages among them.
    pub(crate) fn contexts(&self) -> u32 {
        self.held.len() as u32 - self.firmware
    }

    /// Context pages with nothing in them.
    pub(crate) fn idle(&self) -> u32 {
        self.idle
    }

    pub(crate) fn holds(&self, page: u64) -> bool {
        self.held.contains_key(&page) || self.others.values().any(|pages| pages.contains(&page))
    }

    /// Takes a page in; the first `boot` become the firmware's own.
    pub(crate) fn give(&mut self, io: &mut Io<'_>, page: u64, boot: u32) -> Result<(), Reject> {
        // Both ends are touched, so that a page of which only a part is mapped shows at once.
        let mark = (page ^ PATTERN).to_be_bytes();
        for at in [page, page + PAGE - 8] {
            io.write(at, &mark)
                .map_err(|_| Syndrome::PagesUnreachable)?;
        }
        let role = if self.firmware < boot {
            self.firmware += 1;
            Role::Firmware
        } else {
            self.open.insert(page);
            self.idle += 1;
            Role::Contexts(0)
        };
        self.held.insert(page, role);
        Ok(())
    }

    /// Gives up to `count` pages back: idle ones only, or any when `all`.
    pub(crate) fn take(&mut self, count: usize, keep: u32, all: bool) -> Vec<u64> {
        let spare = if all {
            usize::MAX
        } else {
            self.contexts().saturating_sub(keep) as usize
        };
        let pages: Vec<u64> = self
            .held
            .iter()
            .rev()
            .filter(|&(_, &role)| all || role == Role::Contexts(0))
            .map(|(&page, _)| page)
            .take(count.min(spare))
            .collect();
        for page in &pages {
            match self.held.remove(page) {
                Some(Role::Firmware) => self.firmware -= 1,
                Some(Role::Contexts(0)) => self.idle -= 1,
                _ => {}
            }
            self.open.remove(page);
        }
        pages
    }

    /// Checks whether the firmware's own pages still hold its pattern.
    pub(crate) fn check_firmware(&mut self, io: &mut Io<'_>) -> Result<(), Reject> {
        for (&page, &role) in &self.held {
            if role != Role::Firmware {
                continue;
            }
            for at in [page, page + PAGE - 8] {
                let mut mark = [0; 8];
                io.read(at, &mut mark)
                    .map_err(|_| Syndrome::ContextUnreachable)?;
                if u64::from_be_bytes(mark) != page ^ PATTERN {
                    log::error!("firmware page {page:#x} was overwritten: {mark:02x?}");
                    return Err(Syndrome::ContextLost.into());
                }
            }
        }
        Ok(())
    }

    /// Finds space for a context and writes it.
    pub(crate) fn store(
        &mut self,
        io: &mut Io<'_>,
        kind: u32,
        number: u32,
        context: &[u8],
    ) -> Result<Place, Reject> {
        if self.elsewhere {
            return Ok(Place::default());
        }
        if self.appetite > 0 {
            return Err(Reject::NeedPages(self.appetite));
        }
        let found = self.open.first().copied();
        let Some((page, Some(&Role::Contexts(used)))) =
            found.map(|page| (page, self.held.get(&page)))
        else {
            return Err(Reject::NeedPages(1));
        };
        let slot = (!used).trailing_zeros();
        let place = Place { page, slot };
        self.write(io, place, kind, number, context)?;
        let now = used | 1 << slot;
        self.held.insert(page, Role::Contexts(now));
        self.idle -= u32::from(used == 0);
        if now == u16::MAX {
            self.open.remove(&page);
        }
        Ok(place)
    }

    /// Overwrites a context.
    pub(crate) fn write(
        &mut self,
        io: &mut Io<'_>,
        place: Place,
        kind: u32,
        number: u32,
        context: &[u8],
    ) -> Result<(), Reject> {
        if self.elsewhere {
            return Ok(());
        }
        // The last slot shares its page's end with the mark of a page that is new.
        io.write(
            place.page + u64::from(place.slot) * SLOT as u64,
            &image(kind, number, context),
        )
        .map_err(|_| Syndrome::ContextUnreachable.into())
    }

    /// Checks whether a context is still what was written.
    pub(crate) fn check(
        &mut self,
        io: &mut Io<'_>,
        place: Place,
        kind: u32,
        number: u32,
        context: &[u8],
    ) -> Result<(), Reject> {
        if self.elsewhere {
            return Ok(());
        }
        let mut found = [0; SLOT];
        io.read(place.page + u64::from(place.slot) * SLOT as u64, &mut found)
            .map_err(|_| Syndrome::ContextUnreachable)?;
        if found != image(kind, number, context) {
            log::error!(
                "context {kind:#x}:{number:#x} in page {:#x} was overwritten",
                place.page
            );
            return Err(Syndrome::ContextLost.into());
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, place: Place) {
        debug_assert!(place.slot < SLOTS);
        if let Some(Role::Contexts(used)) = self.held.get_mut(&place.page) {
            *used &= !(1 << place.slot);
            self.idle += u32::from(*used == 0);
            self.open.insert(place.page);
        }
    }

    /// All objects are gone.
    pub(crate) fn release_all(&mut self) {
        for (&page, role) in &mut self.held {
            if let Role::Contexts(used) = role {
                *used = 0;
                self.open.insert(page);
            }
        }
        self.idle = self.open.len() as u32;
    }
}
