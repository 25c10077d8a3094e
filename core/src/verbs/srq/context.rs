//! The three commands that create an SRQ.

use bareverbs_firmware_cmds::numbers::Xrcdn;
use bareverbs_firmware_cmds::srq::{CreateRmpIn, CreateSrqIn, CreateXrcSrqIn};
use bareverbs_firmware_cmds::values::{RmpState, WqType};

use crate::device::{Device, TailIn};
use crate::memory::ring_pages::RingPages;
use crate::platform::Platform;
use crate::types::error::CommandError;

/// The ring of an SRQ, in what all three contexts say of it.
pub(super) struct RingContext {
    pub(super) pages: RingPages,
    pub(super) log_entries: u8,
    pub(super) log_stride: u8,
    pub(super) record: u64,
    pub(super) pdn: u32,
}

impl RingContext {
    /// With ISSI 0.
    pub(super) fn create_srq<P: Platform>(
        &self,
        device: &Device<'_, P>,
    ) -> Result<u32, CommandError> {
        let mut command = CreateSrqIn::new();
        command
            .srq_context_entry_mut()
            .set_log_srq_size(self.log_entries)
            .set_log_rq_stride(self.log_stride - 4)
            .set_page_offset(self.pages.page_offset())
            .set_log_page_size(self.pages.log_page_size())
            .set_pd(self.pdn)
            .set_dbr_addr(self.record);
        let mut list = |i: usize| self.pages.page(i);
        let tail = TailIn::Qwords(self.pages.len(), &mut list);
        Ok(device.execute_with(&command, tail, &mut [])?.srqn())
    }

    /// With ISSI 1.
    pub(super) fn create_rmp<P: Platform>(
        &self,
        device: &Device<'_, P>,
    ) -> Result<u32, CommandError> {
        let mut command = CreateRmpIn::new();
        let context = command.ctx_mut();
        context.set_state(RmpState::Ready.number());
        context
            .wq_mut()
            .set_wq_type(WqType::LinkedList.number())
            .set_pd(self.pdn)
            .set_page_offset(self.pages.page_offset())
            .set_log_wq_stride(self.log_stride)
            .set_log_wq_pg_sz(self.pages.log_page_size())
            .set_log_wq_sz(self.log_entries)
            .set_dbr_addr(self.record);
        let mut list = |i: usize| self.pages.page(i);
        let tail = TailIn::Qwords(self.pages.len(), &mut list);
        Ok(device.execute_with(&command, tail, &mut [])?.rmpn())
    }

    /// For XRC, with ISSI 1.
    pub(super) fn create_xrc_srq<P: Platform>(
        &self,
        device: &Device<'_, P>,
        xrcdn: Xrcdn,
        cqn: u32,
        user_index: u32,
    ) -> Result<u32, CommandError> {
        let mut command = CreateXrcSrqIn::new();
        command
            .xrc_srq_context_entry_mut()
            .set_log_xrc_srq_size(self.log_entries)
            .set_log_rq_stride(self.log_stride - 4)
            .set_xrcd(xrcdn.number())
            .set_page_offset(self.pages.page_offset())
            .set_cqn(cqn)
            .set_log_page_size(self.pages.log_page_size())
            .set_user_index(user_index)
            .set_pd(self.pdn)
            .set_db_record_addr_h((self.record >> 32) as u32)
            .set_db_record_addr_l((self.record as u32) >> 2);
        let mut list = |i: usize| self.pages.page(i);
        let tail = TailIn::Qwords(self.pages.len(), &mut list);
        Ok(device.execute_with(&command, tail, &mut [])?.xrc_srqn())
    }
}
