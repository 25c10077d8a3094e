//! User access regions: the pages of the BAR where doorbells are rung.

/// Size of a UAR page: the driver negotiates `log_uar_page_sz` 0, whatever the host's page size.
pub(crate) const UAR_PAGE_SIZE: usize = 4096;
/// Where a CQ is armed (8 bytes).
pub(crate) const CQ_DOORBELL: usize = 0x20;
/// Where an EQ's consumer index is updated and the EQ armed.
pub(crate) const EQ_DOORBELL_ARM: usize = 0x40;
/// Where an EQ's consumer index is updated without arming.
pub(crate) const EQ_DOORBELL: usize = 0x48;
/// The first send doorbell register (BlueFlame register); a second one follows at the register size.
pub(crate) const SEND_DOORBELL: usize = 0x800;

/// The device's UAR page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uar {
    index: u32,
}

impl Uar {
    /// The UAR with this index, if its page lies inside a BAR of `bar_len` bytes.
    pub(crate) fn new(index: u32, bar_len: usize) -> Option<Self> {
        let end = (index as usize)
            .checked_add(1)?
            .checked_mul(UAR_PAGE_SIZE)?;
        (index != 0 && end <= bar_len).then_some(Self { index })
    }

    /// Its index, as contexts name it.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.index
    }

    /// Where its page starts in BAR 0.
    #[inline]
    pub(crate) const fn offset(self) -> usize {
        self.index as usize * UAR_PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uar_lies_inside_the_bar_and_is_not_the_init_segment() {
        assert_eq!(Uar::new(3, 0x4000).map(Uar::offset), Some(0x3000));
        assert_eq!(Uar::new(4, 0x4000), None);
        assert_eq!(Uar::new(0, 0x4000), None);
        assert_eq!(
            Uar::new(u32::MAX, usize::MAX).map(Uar::index),
            Some(u32::MAX)
        );
    }
}
