//! The pages of the memory on the device that this driver has taken.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Size of the pages in which the driver shares device memory out.
pub(crate) const DM_PAGE: usize = 4096;
/// The most of them that it keeps track of: `MLX5_MAX_MEMIC_PAGES`.
pub(crate) const DM_PAGES: usize = 256;

/// First page, and how many.
pub(crate) type Pages = (usize, usize);

/// The pages of device memory in which this driver has allocated something, a bit each.
#[derive(Debug, Default)]
pub(crate) struct DmPages([AtomicU32; DM_PAGES / 32]);

impl DmPages {
    /// Sets or clears the bit of a page. Returns true if it was set before.
    fn set(&self, page: usize, to: bool) -> bool {
        let bit = 1 << (page % 32);
        self.0.get(page / 32).is_none_or(|word| {
            let old = match to {
                true => word.fetch_or(bit, Relaxed),
                false => word.fetch_and(!bit, Relaxed),
            };
            old & bit != 0
        })
    }

    /// Takes these pages, if none of them is taken.
    pub(crate) fn take(&self, first: usize, count: usize) -> Option<Pages> {
        let taken = (first..first + count).position(|page| self.set(page, true));
        match taken {
            None => Some((first, count)),
            Some(ours) => {
                self.give_back((first, ours));
                None
            }
        }
    }

    pub(crate) fn give_back(&self, (first, count): Pages) {
        for page in first..first + count {
            self.set(page, false);
        }
    }
}
