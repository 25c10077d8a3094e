//! The parts of a BAR that may be mapped into the process.
//!
//! vfio-pci maps a BAR as a whole, or, where the MSI-X table lies in it and older rules apply, the "sparse" areas round
//! the table. What is not mapped is still reached by `pread` and `pwrite` on the device. Pure arithmetic.

use std::ops::Range;

/// A mappable area as the kernel reports it (`vfio_region_sparse_mmap_area`): offset in the BAR, and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// The parts of a BAR of `bar_len` bytes that can be mapped, in whole pages of `page` bytes: sorted, disjoint, adjacent
/// ones joined. `areas` is what the kernel lists; `None` means that it lists nothing and all of the BAR may be mapped.
pub(crate) fn windows(bar_len: u64, areas: Option<&[Area]>, page: u64) -> Vec<Range<u64>> {
    let whole = [Area {
        offset: 0,
        size: bar_len,
    }];
    let mut windows: Vec<Range<u64>> = areas
        .unwrap_or(&whole)
        .iter()
        .filter_map(|area| {
            let end = area.offset.saturating_add(area.size).min(bar_len);
            let start = area.offset.checked_next_multiple_of(page)?;
            let end = end - end % page;
            (start < end).then_some(start..end)
        })
        .collect();
    windows.sort_by_key(|window| window.start);
    windows.dedup_by(|next, previous| {
        let joined = next.start <= previous.end;
        if joined {
            previous.end = previous.end.max(next.end);
        }
        joined
    });
    windows
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one window is what is meant"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn area(offset: u64, size: u64) -> Area {
        Area { offset, size }
    }

    #[test]
    fn without_a_list_the_whole_bar_is_one_window() {
        assert_eq!(windows(32 << 20, None, PAGE), [0..32 << 20]);
    }

    #[test]
    fn an_empty_list_means_that_nothing_may_be_mapped() {
        assert_eq!(windows(32 << 20, Some(&[]), PAGE), []);
        assert_eq!(windows(0, None, PAGE), []);
    }

    #[test]
    fn the_hole_of_the_msix_table_stays_a_hole() {
        let areas = [area(0x4000, 0x1_c000), area(0, 0x2000)];
        assert_eq!(
            windows(0x2_0000, Some(&areas), PAGE),
            [0..0x2000, 0x4000..0x2_0000]
        );
    }

    #[test]
    fn overlapping_and_touching_areas_are_joined() {
        let areas = [
            area(0x1000, 0x1000),
            area(0, 0x1000),
            area(0x1800, 0x2800),
            area(0x1000, 0x1000),
        ];
        assert_eq!(windows(1 << 20, Some(&areas), PAGE), [0..0x4000]);
    }

    #[test]
    fn what_lies_outside_or_in_part_of_a_page_is_left_out() {
        let areas = [
            area(0x10, 0x1000),
            area(0x1f_f000, 0x5000),
            area(0x20_0000, 0x1000),
            area(u64::MAX - 5, 4),
            area(u64::MAX, u64::MAX),
            area(0x3000, u64::MAX),
        ];
        assert_eq!(
            windows(0x20_0000, Some(&areas[..2]), PAGE),
            [0x1f_f000..0x20_0000]
        );
        assert_eq!(windows(0x20_0000, Some(&areas), PAGE), [0x3000..0x20_0000]);
        // A BAR smaller than the page is not mappable at all.
        assert_eq!(windows(0x1000, None, 0x1_0000), []);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]

        #[test]
        fn windows_lie_within_the_areas_and_miss_no_whole_page(
            list in proptest::collection::vec((0u64..0x12_000, 0u64..0x6_000), 0..8),
        ) {
            let bar_len = 0x10_000;
            let areas: Vec<Area> = list.iter().map(|&(offset, size)| area(offset, size)).collect();
            let windows = windows(bar_len, Some(&areas), PAGE);
            for pair in windows.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            for page in (0..bar_len).step_by(PAGE as usize) {
                let inside = windows.iter().any(|w| w.start <= page && page + PAGE <= w.end);
                let listed = areas.iter().any(|a| a.offset <= page && page + PAGE <= a.offset + a.size);
                prop_assert_eq!(inside, listed, "page {:#x}", page);
            }
        }
    }
}
