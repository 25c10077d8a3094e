//! Device addresses: which are free, and which are taken.
//!
//! Pure bookkeeping. The ranges that may be used come from the IOMMU driver; the allocator never gives out an address
//! outside them, never the interrupt window, and never address 0.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Where x86 sends message-signalled interrupts. A DMA write there is an interrupt, not a memory access. The kernel
/// leaves the window out of the ranges that it reports; those that report no ranges rely on the user knowing it.
const MSI_WINDOW: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;

/// Nothing is placed below: firmware and device take address 0 for "none".
const LOWEST: u64 = 0x1_0000;

/// The usable addresses where the kernel names none: 39 bits is the narrowest that an x86 IOMMU is built with.
const WITHOUT_REPORT: RangeInclusive<u64> = LOWEST..=(1 << 39) - 1;

/// A range of device addresses that was taken and is to be given back as it is.
///
/// It is neither `Clone` nor built elsewhere, so that what is freed is exactly what was allocated: freeing another
/// length than the one that was taken is the classic fault of such allocators, and it hands out memory in use.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a range that is not given back stays taken"]
pub(crate) struct IovaRange {
    start: u64,
    len: u64,
}

impl IovaRange {
    /// The first address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// The device addresses of one container.
#[derive(Debug)]
pub(crate) struct IovaSpace {
    /// Free ranges, first to last address, disjoint and never adjacent. Inclusive, as the last one may end at the very
    /// top of the address space.
    free: BTreeMap<u64, u64>,
    /// The smallest unit, a power of two: everything starts and ends at a multiple.
    granule: u64,
}

impl IovaSpace {
    /// All of `usable` that is not reserved, in units of `granule` (a power of two, the IOMMU's smallest page).
    /// Without `usable` ranges a conservative default is taken.
    pub(crate) fn new(usable: &[RangeInclusive<u64>], granule: u64) -> Self {
        debug_assert!(granule.is_power_of_two());
        let usable = if usable.is_empty() {
            &[WITHOUT_REPORT][..]
        } else {
            usable
        };
        let mut space = Self {
            free: BTreeMap::new(),
            granule,
        };
        for range in usable {
            let first = (*range.start()).max(LOWEST);
            let last = *range.end();
            if last < *MSI_WINDOW.start() || first > *MSI_WINDOW.end() {
                space.add_usable(first, last);
            } else {
                // The window's bounds are far from both ends of the address space.
                space.add_usable(first, *MSI_WINDOW.start() - 1);
                space.add_usable(*MSI_WINDOW.end() + 1, last);
            }
        }
        space
    }

    /// Adds what lies in whole granules between the two addresses (both included). Ranges may overlap.
    fn add_usable(&mut self, first: u64, last: u64) {
        let mask = self.granule - 1;
        let Some(mut first) = first.checked_add(mask).map(|a| a & !mask) else {
            return;
        };
        // One past the last whole granule, less one; wrapping at the top of the address space is what is meant.
        let mut last = if last & mask == mask {
            last
        } else {
            match (last & !mask).checked_sub(1) {
                Some(last) => last,
                None => return,
            }
        };
        if first > last {
            return;
        }
        // Merge every range that overlaps or touches.
        while let Some((&start, &end)) = self
            .free
            .range(..=last.saturating_add(1))
            .next_back()
            .filter(|(_, end)| end.saturating_add(1) >= first)
        {
            self.free.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.free.insert(first, last);
    }

    /// Takes the lowest free range of `len` bytes (rounded up to the granule) that starts at `offset` modulo `align`.
    ///
    /// `align` is a power of two; `offset` counts modulo `align` and must be a multiple of the granule. `None` if there
    /// is no such range, or the request is invalid.
    pub(crate) fn allocate(&mut self, len: u64, align: u64, offset: u64) -> Option<IovaRange> {
        let mask = self.granule - 1;
        let align = align.max(self.granule);
        let offset = offset & align.checked_sub(1)?;
        if len == 0 || !align.is_power_of_two() || offset & mask != 0 {
            return None;
        }
        let len = len.checked_add(mask)? & !mask;
        let (range_start, range_last, start) = self.free.iter().find_map(|(&first, &last)| {
            let start = at_or_after(first, align, offset)?;
            let end = start.checked_add(len - 1)?;
            (end <= last).then_some((first, last, start))
        })?;
        self.free.remove(&range_start);
        if range_start < start {
            self.free.insert(range_start, start - 1);
        }
        let end = start + (len - 1);
        if end < range_last {
            self.free.insert(end + 1, range_last);
        }
        Some(IovaRange { start, len })
    }

    /// Gives a range back.
    pub(crate) fn free(&mut self, range: IovaRange) {
        let (start, last) = (range.start, range.start + (range.len - 1));
        debug_assert!(
            self.free
                .range(..=last)
                .next_back()
                .is_none_or(|(_, &end)| end < start),
            "{range:x?} was free already"
        );
        self.add_usable(start, last);
    }

    /// The number of free bytes, saturating.
    #[cfg(test)]
    fn free_bytes(&self) -> u128 {
        self.free
            .iter()
            .map(|(first, last)| u128::from(*last) - u128::from(*first) + 1)
            .sum()
    }
}

/// The lowest address from `first` on that is `offset` modulo `align` (a power of two above `offset`).
fn at_or_after(first: u64, align: u64, offset: u64) -> Option<u64> {
    let distance = offset.wrapping_sub(first) & (align - 1);
    first.checked_add(distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn space() -> IovaSpace {
        IovaSpace::new(&[0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1], PAGE)
    }

    #[test]
    fn address_zero_and_the_interrupt_window_are_never_given_out() {
        // One range right across both, as a simple driver would report.
        let mut space = IovaSpace::new(&[0..=0xffff_ffff], 0x1_0000);
        let mut taken = Vec::new();
        while let Some(range) = space.allocate(0x1_0000, 0x1_0000, 0) {
            assert!(range.start() >= LOWEST);
            assert!(
                range.start() + range.len() <= *MSI_WINDOW.start()
                    || range.start() > *MSI_WINDOW.end(),
                "{range:x?}"
            );
            taken.push(range);
        }
        assert_eq!(taken.len(), 0x1_0000 - 1 - 0x10);
    }

    #[test]
    fn without_a_report_the_default_is_39_bits() {
        let mut space = IovaSpace::new(&[], PAGE);
        assert_eq!(space.allocate(PAGE, PAGE, 0).unwrap().start(), LOWEST);
        assert_eq!(space.allocate(1 << 39, PAGE, 0), None);
        let high = space.allocate(1 << 38, 1 << 38, 0).unwrap();
        assert_eq!((high.start(), high.len()), (1 << 38, 1 << 38));
    }

    #[test]
    fn alignment_and_congruence_hold() {
        let mut space = space();
        let range = space.allocate(3 * PAGE, 1 << 21, 0x5000).unwrap();
        assert_eq!(range.start() % (1 << 21), 0x5000);
        let range = space.allocate(PAGE, 1 << 21, 0).unwrap();
        assert_eq!(range.start() % (1 << 21), 0);
        // An alignment below the granule is the granule's.
        assert_eq!(space.allocate(1, 1, 0).unwrap().len(), PAGE);
    }

    #[test]
    fn requests_without_sense_get_nothing() {
        let mut space = space();
        assert_eq!(space.allocate(0, PAGE, 0), None);
        assert_eq!(space.allocate(PAGE, 3 * PAGE, 0), None);
        assert_eq!(space.allocate(PAGE, 2 * PAGE, 1), None);
        assert_eq!(space.allocate(u64::MAX, PAGE, 0), None);
        assert_eq!(space.allocate(PAGE, 1 << 63, 0), None);
        assert_eq!(space.free_bytes(), self::space().free_bytes());
    }

    /// The fault of rdma-core's VFIO provider (`mlx5_vfio_dereg_mr`): an address that ends in 0x1000, of length 0x2000,
    /// took 0x3000 and gave 0x4000 back, so that a neighbour still in use was handed out again.
    #[test]
    fn what_is_freed_is_what_was_taken() {
        let mut space = space();
        let before = space.free_bytes();
        let first = space.allocate(0x2000, 0x4000, 0x1000).unwrap();
        let neighbour = space.allocate(PAGE, PAGE, first.start() + 0x2000).unwrap();
        assert_eq!(neighbour.start() % PAGE, 0);
        space.free(first);
        for _ in 0..64 {
            let other = space.allocate(PAGE, PAGE, 0).unwrap();
            assert_ne!(other.start(), neighbour.start());
            // Not given back: the next one must lie elsewhere.
        }
        space.free(neighbour);
        assert_eq!(space.free_bytes(), before - 64 * u128::from(PAGE));
    }

    #[test]
    fn the_top_of_the_address_space_is_usable() {
        let mut space = IovaSpace::new(&[u64::MAX - 0xffff..=u64::MAX], PAGE);
        let range = space.allocate(0x1_0000, PAGE, 0).unwrap();
        assert_eq!(range.start(), u64::MAX - 0xffff);
        assert_eq!(space.allocate(PAGE, PAGE, 0), None);
        space.free(range);
        assert_eq!(space.free_bytes(), 0x1_0000);
    }

    #[test]
    fn odd_reports_are_trimmed_to_whole_granules() {
        let space = IovaSpace::new(&[0x1_0001..=0x1_2ffe, 0x2_0000..=0x2_0ffe], PAGE);
        assert_eq!(space.free_bytes(), u128::from(PAGE));
        let space = IovaSpace::new(&[0x10_0000..=0x1f_ffff, 0x18_0000..=0x2f_ffff], PAGE);
        assert_eq!(space.free.len(), 1);
        assert_eq!(space.free_bytes(), 0x20_0000);
        #[expect(
            clippy::reversed_empty_ranges,
            reason = "what a broken report would say"
        )]
        let backwards = [0x20_0000..=0x10_0000];
        assert_eq!(IovaSpace::new(&backwards, PAGE).free_bytes(), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take { len: u64, align: u32, offset: u64 },
        Give(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1u64..0x40_0000, 0u32..24, 0u64..0x1000).prop_map(|(len, align, offset)| Step::Take {
                len,
                align,
                offset: offset * PAGE,
            }),
            2 => any::<usize>().prop_map(Step::Give),
        ]
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]

        #[test]
        fn nothing_overlaps_and_nothing_is_lost(steps in proptest::collection::vec(step(), 1..200)) {
            // Small, so that it also runs full.
            let usable = [0x10_0000..=0x1ff_ffff, 0xfed0_0000..=0xff1f_ffff];
            let mut space = IovaSpace::new(&usable, PAGE);
            let before = space.free_bytes();
            let mut taken: Vec<IovaRange> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { len, align, offset } => {
                        let align = 1u64 << align;
                        let Some(range) = space.allocate(len, align, offset) else { continue };
                        let (start, last) = (range.start(), range.start() + range.len() - 1);
                        prop_assert!(range.len() >= len && range.len() - len < PAGE);
                        let align = align.max(PAGE);
                        prop_assert_eq!(start % align, offset % align);
                        prop_assert!(usable.iter().any(|u| u.contains(&start) && u.contains(&last)));
                        prop_assert!(last < *MSI_WINDOW.start() || start > *MSI_WINDOW.end());
                        for other in &taken {
                            prop_assert!(last < other.start() || other.start() + other.len() <= start);
                        }
                        taken.push(range);
                    }
                    Step::Give(index) if !taken.is_empty() => {
                        let index = index % taken.len();
                        space.free(taken.swap_remove(index));
                    }
                    Step::Give(_) => {}
                }
                let out: u128 = taken.iter().map(|r| u128::from(r.len())).sum();
                prop_assert_eq!(space.free_bytes() + out, before);
            }
            for range in taken {
                space.free(range);
            }
            prop_assert_eq!(space.free_bytes(), before);
            // Everything has grown together again.
            prop_assert_eq!(space.free.len(), 3);
        }
    }
}
