//! How a context tells the device where a ring lies: page size, offset in the first page, and the list of pages.

/// A ring in contiguous device memory, in the terms of a context.
///
/// `page_offset` counts 64ths of a page, so that a large page needs a start that is aligned accordingly; the page size is
/// the largest that the start allows, as far as it makes the list shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingPages {
    first: u64,
    log_page: u8,
    offset: u8,
    count: usize,
}

impl RingPages {
    /// Largest `log_page_size` that contexts can say (5 bits).
    const MAX_LOG: u8 = 12 + 31;
    /// Binary logarithm of what `page_offset` divides a page into.
    const LOG_UNITS: u8 = 6;

    /// Describes `len` bytes at `iova`, a multiple of 64.
    pub(crate) fn new(iova: u64, len: usize) -> Self {
        let mut log_page = 12;
        while log_page < Self::MAX_LOG
            && Self::count(iova, len, log_page) > 1
            && iova.is_multiple_of(2 << (log_page - Self::LOG_UNITS))
        {
            log_page += 1;
        }
        let page = 1_u64 << log_page;
        Self {
            first: iova & !(page - 1),
            log_page,
            offset: ((iova & (page - 1)) >> (log_page - Self::LOG_UNITS)) as u8,
            count: Self::count(iova, len, log_page),
        }
    }

    fn count(iova: u64, len: usize, log_page: u8) -> usize {
        let offset = (iova & ((1 << log_page) - 1)) as usize;
        (offset + len).div_ceil(1 << log_page)
    }

    /// `log_page_size`, relative to 4 KiB.
    pub(crate) fn log_page_size(&self) -> u8 {
        self.log_page - 12
    }

    /// `page_offset`.
    pub(crate) fn page_offset(&self) -> u8 {
        self.offset
    }

    /// Entries of the page list.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// An entry of the page list.
    pub(crate) fn page(&self, index: usize) -> u64 {
        self.first + ((index as u64) << self.log_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_ring() {
        for iova in [
            0,
            0x40,
            0xfc0,
            0x1000,
            0x2040,
            0x2080,
            0x1_1000,
            0x7f00_0001_0040,
            0x7f00_0020_0000,
            0x1_0000_0f80,
        ] {
            for len in [64, 128, 4032, 4096, 4160, 65536, 1 << 20, 3 << 21] {
                let ring = RingPages::new(iova, len);
                let page = 4096_u64 << ring.log_page_size();
                assert_eq!(
                    ring.page(0) + u64::from(ring.page_offset()) * (page / 64),
                    iova
                );
                assert!(ring.page_offset() < 64);
                let end = ring.page(ring.len() - 1) + page;
                assert!(end >= iova + len as u64 && end - page < iova + len as u64);
                assert_eq!(ring.page(0) % page, 0);
            }
        }
    }

    #[test]
    fn aligned_rings_need_one_entry() {
        assert_eq!(RingPages::new(0x20_0000, 0x20_0000).len(), 1);
        assert_eq!(RingPages::new(0x20_0000, 0x20_0000).log_page_size(), 9);
        assert_eq!(
            RingPages::new(0x1040, 64),
            RingPages {
                first: 0x1000,
                log_page: 12,
                offset: 1,
                count: 1
            }
        );
    }
}
