//! The answers of `VFIO_IOMMU_GET_INFO` and `IOMMU_IOAS_IOVA_RANGES`: page sizes, usable device addresses, mappings
//! left. Pure parsing.

use std::ops::RangeInclusive;

use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL,
};

/// Length of `struct vfio_iommu_type1_info` without capabilities.
pub(crate) const FIXED: usize = 24;

/// The limits of the IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IommuInfo {
    /// The smallest page that can be mapped, at least 4 KiB.
    pub(crate) granule: u64,
    /// The device addresses that may be used; empty if the kernel does not say.
    pub(crate) usable: Vec<RangeInclusive<u64>>,
    /// The number of mappings left (`dma_entry_limit`), if the kernel says it.
    pub(crate) mappings: Option<u32>,
}

impl IommuInfo {
    /// Reads the answer of `IOMMU_IOAS_IOVA_RANGES`. The alignment is at most a page of the system, and 1 means none.
    pub(crate) fn of_ioas(
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        alignment: u64,
    ) -> Self {
        Self {
            granule: alignment.checked_next_power_of_two().unwrap_or(0).max(4096),
            usable: ranges.filter(|range| !range.is_empty()).collect(),
            mappings: None,
        }
    }
}

/// Reads the structure and its chain of capabilities. What is malformed is left out: the chain ends where it leads
/// backwards or outside.
pub(crate) fn parse(info: &[u8]) -> IommuInfo {
    let flags = word(info, 4).unwrap_or(0);
    let sizes = if flags & VFIO_IOMMU_INFO_PGSIZES != 0 {
        long(info, 8).unwrap_or(0) & !0xfff
    } else {
        0
    };
    let mut result = IommuInfo {
        granule: if sizes == 0 {
            4096
        } else {
            1 << sizes.trailing_zeros()
        },
        usable: Vec::new(),
        mappings: None,
    };
    let mut at = if flags & VFIO_IOMMU_INFO_CAPS != 0 {
        word(info, 16).unwrap_or(0) as usize
    } else {
        0
    };
    while at >= FIXED {
        let (Some(id), Some(next)) = (word(info, at), word(info, at + 4)) else {
            break;
        };
        // The upper half is the version; both capabilities have had one only.
        match id & 0xffff {
            VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                let count = word(info, at + 8).unwrap_or(0) as usize;
                let ranges = info.get(at + 16..).unwrap_or(&[]).chunks_exact(16);
                result.usable = ranges
                    .take(count)
                    .filter_map(|range| Some(long(range, 0)?..=long(range, 8)?))
                    .filter(|range| !range.is_empty())
                    .collect();
            }
            VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => result.mappings = word(info, at + 8),
            _ => {}
        }
        let next = next as usize;
        if next <= at {
            break;
        }
        at = next;
    }
    result
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn info(flags: u32, sizes: u64, caps: u32) -> Vec<u8> {
        let mut info = words(&[0, flags]);
        info.extend(sizes.to_ne_bytes());
        info.extend(words(&[caps, 0]));
        assert_eq!(info.len(), FIXED);
        info
    }

    #[test]
    fn a_full_answer() {
        let mut answer = info(3, 0x4020_1000, 24);
        // Migration (2), which is of no interest, then the ranges, then what is left.
        answer.extend(words(&[2 | 1 << 16, 56, 0, 0, 0, 0, 0, 0]));
        answer.extend(words(&[1 | 1 << 16, 104, 2, 0]));
        for bound in [0, 0xfedf_ffff, 0xfef0_0000, u64::MAX] {
            answer.extend(u64::to_ne_bytes(bound));
        }
        answer.extend(words(&[3 | 1 << 16, 0, 65535]));
        assert_eq!(
            parse(&answer),
            IommuInfo {
                granule: 4096,
                usable: vec![0..=0xfedf_ffff, 0xfef0_0000..=u64::MAX],
                mappings: Some(65535),
            }
        );
    }

    #[test]
    fn ranges_of_an_ioas() {
        // As Intel's IOMMU in QEMU answers: all but the window of the MSI messages.
        let ranges = [0..=0xfedf_ffff, 0xfef0_0000..=(1 << 48) - 1];
        let info = IommuInfo::of_ioas(ranges.clone().into_iter(), 4096);
        assert_eq!((info.granule, info.usable), (4096, ranges.to_vec()));
        for (alignment, granule) in [(0, 4096), (1, 4096), (0x1_0000, 0x1_0000), (u64::MAX, 4096)] {
            let empty = RangeInclusive::new(1, 0);
            let info = IommuInfo::of_ioas(std::iter::once(empty), alignment);
            assert_eq!(
                (info.granule, info.usable),
                (granule, vec![]),
                "{alignment:#x}"
            );
        }
    }

    #[test]
    fn an_answer_without_capabilities() {
        let plain = parse(&info(1, 0x2001_0000, 0));
        assert_eq!((plain.granule, plain.usable.len()), (0x1_0000, 0));
        // A page size below what the device counts in.
        assert_eq!(parse(&info(1, 0x1e00, 0)).granule, 4096);
        assert_eq!(parse(&info(0, 0x1_0000, 0)).granule, 4096);
        assert_eq!(parse(&[]).granule, 4096);
    }

    #[test]
    fn a_chain_that_loops_or_leads_outside_ends() {
        let mut looping = info(2, 0, 24);
        looping.extend(words(&[2, 24, 0, 0]));
        assert_eq!(parse(&looping).mappings, None);
        let mut outside = info(2, 0, 24);
        outside.extend(words(&[3, u32::MAX, 7]));
        assert_eq!(parse(&outside).mappings, Some(7));
        // More ranges announced than there are.
        let mut short = info(2, 0, 24);
        short.extend(words(&[1, 0, u32::MAX, 0, 0, 0, 0xffff, 0, 1, 2]));
        assert_eq!(parse(&short).usable.len(), 1);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]

        #[test]
        fn no_answer_makes_it_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut flagged = bytes;
            if flagged.len() > 20 {
                flagged[4..8].copy_from_slice(&3u32.to_ne_bytes());
                flagged[16..20].copy_from_slice(&24u32.to_ne_bytes());
                prop_assert!(parse(&flagged).granule >= 4096);
            }
        }
    }
}
