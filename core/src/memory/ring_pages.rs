//! Description of a ring's place in a context: page size, offset in the first page, and the list of
//! pages.

/// The width of the context's field `page_offset`, and with it the largest offset of a ring in its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageOffset {
    /// 5 bits: `wq`, which is the ring of receive memory pools and of Ethernet queues. The ring has to start with a 4 KiB
    /// page, as half of the other offsets in small pages cannot be encoded.
    FiveBits,
    /// 6 bits: `qpc`, `cqc`, `eqc`, `srqc`, `xrc_srqc`.
    SixBits,
}

impl PageOffset {
    /// Returns `true` if the field holds this many 64ths of a page.
    const fn holds(self, units: u64) -> bool {
        match self {
            Self::FiveBits => units < 1 << 5,
            Self::SixBits => units < 1 << 6,
        }
    }
}

/// A ring in contiguous device memory, in the terms of a context.
///
/// `page_offset` counts 64ths of a page, so that a large page needs a start that is aligned accordingly, and lies in
/// the part of the page that the field can address; the page size is the largest that the start allows, as far as it
/// makes the list shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingPages {
    first: u64,
    log_page: u8,
    offset: u8,
    count: usize,
}

impl RingPages {
    /// Largest `log_page_size` that contexts can hold (5 bits).
    const MAX_LOG: u8 = 12 + 31;
    /// Binary logarithm of what `page_offset` divides a page into.
    const LOG_UNITS: u8 = 6;

    /// Describes `len` bytes at `iova` (a multiple of 64; of 4096 if the field has 5 bits).
    pub(crate) fn new(iova: u64, len: usize, field: PageOffset) -> Self {
        let mut log_page = 12;
        let mut next = log_page;
        while next < Self::MAX_LOG
            && Self::count(iova, len, log_page) > 1
            && iova.is_multiple_of(2 << (next - Self::LOG_UNITS))
        {
            next += 1;
            // A start in the upper half of a page may be in the lower half of the next larger one.
            if field.holds(Self::units(iova, next)) {
                log_page = next;
            }
        }
        let page = 1_u64 << log_page;
        Self {
            first: iova & !(page - 1),
            log_page,
            offset: Self::units(iova, log_page) as u8,
            count: Self::count(iova, len, log_page),
        }
    }

    /// 64ths of a page before the ring.
    fn units(iova: u64, log_page: u8) -> u64 {
        (iova & ((1 << log_page) - 1)) >> (log_page - Self::LOG_UNITS)
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
    extern crate std;

    use bareverbs_firmware_cmds::cq::Cqc;
    use bareverbs_firmware_cmds::qp::Qpc;
    use bareverbs_firmware_cmds::srq::{Srqc, Wq, XrcSrqc};
    use std::vec::Vec;

    use super::*;

    /// Structures, fields, bit offsets and widths as the vendor's header has them.
    const MLX5_IFC: &str = include_str!("../../../firmware-cmds/data/mlx5_ifc.tsv");

    /// A field of a structure by its offset and width in the vendor's header.
    struct Field {
        offset: usize,
        width: usize,
    }

    impl Field {
        fn find(structure: &str, field: &str) -> Self {
            let mut columns = MLX5_IFC
                .lines()
                .map(|line| line.split('\t'))
                .find(|columns| columns.clone().take(2).eq([structure, field]))
                .expect("a field of the header")
                .skip(2)
                .map(|number| number.parse().expect("a number"));
            Self {
                offset: columns.next().unwrap(),
                width: columns.next().unwrap(),
            }
        }

        fn read(&self, bytes: &[u8]) -> u64 {
            (self.offset..self.offset + self.width).fold(0, |value, bit| {
                value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1)
            })
        }
    }

    /// Fields of a context that describe a ring, by the vendor's header.
    struct Context {
        name: &'static str,
        field: PageOffset,
        page_offset: Field,
        log_page_size: Field,
        fill: fn(&RingPages) -> Vec<u8>,
    }

    macro_rules! context {
        ($type:ident, $name:literal, $field:ident, $log_page_size:literal, $set:ident) => {
            Context {
                name: $name,
                field: PageOffset::$field,
                page_offset: Field::find($name, "page_offset"),
                log_page_size: Field::find($name, $log_page_size),
                fill: |ring| {
                    let mut context = $type::ZERO;
                    context
                        .set_page_offset(ring.page_offset())
                        .$set(ring.log_page_size());
                    context.0.to_vec()
                },
            }
        };
    }

    fn contexts() -> [Context; 5] {
        [
            context!(Wq, "wq", FiveBits, "log_wq_pg_sz", set_log_wq_pg_sz),
            context!(Srqc, "srqc", SixBits, "log_page_size", set_log_page_size),
            context!(
                XrcSrqc,
                "xrc_srqc",
                SixBits,
                "log_page_size",
                set_log_page_size
            ),
            context!(Qpc, "qpc", SixBits, "log_page_size", set_log_page_size),
            context!(Cqc, "cqc", SixBits, "log_page_size", set_log_page_size),
        ]
    }

    /// The memory that the device takes for the ring is the ring: all its bytes, in order, and no page more.
    fn check(context: &Context, iova: u64, len: usize) {
        let ring = RingPages::new(iova, len, context.field);
        let bytes = (context.fill)(&ring);
        let page = 4096_u64 << context.log_page_size.read(&bytes);
        let offset = context.page_offset.read(&bytes) * (page / 64);
        let what = std::format!("{} at {iova:#x}, {len:#x} bytes: {ring:?}", context.name);
        assert_eq!(ring.page(0) + offset, iova, "{what}");
        assert_eq!(ring.page(0) % page, 0, "{what}");
        let last = ring.len() as u64 - 1;
        assert_eq!(ring.page(ring.len() - 1), ring.page(0) + last * page);
        let end = offset + len as u64;
        assert!(last * page < end && end <= (last + 1) * page, "{what}");
    }

    /// Lengths of all rings: powers of two from one basic block to the largest CQ, and sums of two of them.
    fn lengths() -> impl Iterator<Item = usize> {
        (6..=28).flat_map(|log| {
            let len = 1_usize << log;
            [Some(len), (len > 64).then(|| len + len / 2), Some(len + 64)]
                .into_iter()
                .flatten()
        })
    }

    #[test]
    fn fields_have_the_widths_of_the_header() {
        for context in contexts() {
            let width = context.page_offset.width;
            let wide = context.field == PageOffset::SixBits;
            assert_eq!(width, if wide { 6 } else { 5 }, "{}", context.name);
        }
    }

    #[test]
    fn rings_at_every_page_are_found_by_the_device() {
        for context in contexts() {
            for len in lengths() {
                for page in 0..256 {
                    check(&context, 0x7f00_0000_0000 + page * 4096, len);
                }
            }
        }
    }

    #[test]
    fn rings_at_every_line_are_found_by_the_device() {
        for context in contexts() {
            if context.field == PageOffset::FiveBits {
                continue;
            }
            for len in lengths() {
                for line in 0..512 {
                    check(&context, 0x1_0000_0000 + line * 64, len);
                }
            }
        }
    }

    #[test]
    fn aligned_rings_need_one_entry() {
        for field in [PageOffset::FiveBits, PageOffset::SixBits] {
            let ring = RingPages::new(0x20_0000, 0x20_0000, field);
            assert_eq!((ring.len(), ring.log_page_size()), (1, 9));
        }
        assert_eq!(
            RingPages::new(0x1040, 64, PageOffset::SixBits),
            RingPages {
                first: 0x1000,
                log_page: 12,
                offset: 1,
                count: 1
            }
        );
    }
}
