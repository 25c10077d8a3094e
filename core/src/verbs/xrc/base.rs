//! Objects that the contexts of XRC QPs have to name although they are never used: a protection domain, a CQ, a domain
//! and an SRQ.
//!
//! An initiator has no receives and a target no queue at all, but their contexts name the objects of both, and Linux
//! fills these fields with objects that it creates for this when it starts. Here they exist, once for the device, while
//! there are QPs that need them.

use core::alloc::Layout;

use bareverbs_firmware_cmds::cq::{CreateCqIn, DestroyCqIn};
use bareverbs_firmware_cmds::domain::{AllocPdIn, AllocXrcdIn, DeallocPdIn, DeallocXrcdIn};
use bareverbs_firmware_cmds::srq::{CreateXrcSrqIn, DestroyXrcSrqIn};

use crate::device::xrc_objects::{NO_USER_INDEX, Objects, XrcBase, XrcNumbers};
use crate::device::{Device, TailIn};
use crate::memory::dma::DmaMemory;
use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use crate::verbs::qp::CreateQpError;

/// Offsets in the memory of CQ and SRQ: two pages, whose second one is the SRQ's ring.
const CQ_RECORD: u64 = 0x400;
const SRQ_RECORD: u64 = 0x440;
const SRQ_RING: usize = 0x1000;
const LEN: usize = 0x2000;
/// Sizes: two entries each, of 64 and of 32 bytes.
const LOG_ENTRIES: u8 = 1;
const CQ_LEN: usize = 128;
const LOG_SRQ_STRIDE: u8 = 5;

impl<P: Platform> Device<'_, P> {
    /// One more QP names the objects; the first one creates them.
    pub(crate) fn acquire_xrc_base(&self) -> Result<XrcNumbers, CreateQpError> {
        let mut base = self.xrc_base.lock();
        if base.users == 0
            && let Err(error) = self.create_xrc_base(&mut base)
        {
            self.destroy_xrc_base(&mut base);
            if matches!(error, CreateQpError::Command(error) if error.may_still_happen()) {
                self.abandon_xrc_base(&mut base);
            }
            return Err(error);
        }
        let Objects {
            pdn: Some(pdn),
            cqn: Some(cqn),
            xrcdn: Some(xrcdn),
            srqn: Some(srqn),
        } = base.objects
        else {
            return Err(CreateQpError::NoXrc);
        };
        base.users += 1;
        Ok(XrcNumbers {
            pdn,
            cqn,
            xrcdn,
            srqn,
        })
    }

    /// One fewer; the last one destroys them.
    pub(crate) fn release_xrc_base(&self) {
        let mut base = self.xrc_base.lock();
        base.users = base.users.saturating_sub(1);
        if base.users == 0 {
            self.destroy_xrc_base(&mut base);
        }
    }

    /// The device is closed: tries once more to destroy what could not be destroyed before, and gives up then.
    pub(crate) fn close_xrc_base(&self) {
        if !cfg!(feature = "xrc") {
            return;
        }
        let mut base = self.xrc_base.lock();
        self.destroy_xrc_base(&mut base);
        self.abandon_xrc_base(&mut base);
    }

    /// Leaves everything to the device.
    fn abandon_xrc_base(&self, base: &mut XrcBase) {
        base.objects = Objects::default();
        if let Some(memory) = base.memory.take() {
            self.quarantine(memory);
        }
    }

    /// Creates the objects that do not exist yet, or no longer.
    fn create_xrc_base(&self, base: &mut XrcBase) -> Result<(), CreateQpError> {
        let memory = match base.memory.take() {
            Some(memory) => memory,
            None => {
                let layout = Layout::from_size_align(LEN, 4096)
                    .map_err(|_| CreateQpError::Memory(DmaError::OutOfMemory))?;
                DmaMemory::alloc(self.platform(), layout).map_err(CreateQpError::Memory)?
            }
        };
        if base.objects.cqn.is_none() {
            // No entry is the host's.
            memory.fill(0, CQ_LEN, 0xf0);
        }
        if base.objects.srqn.is_none() {
            // The free list: one entry leads to the other.
            memory.write_be32(SRQ_RING, 1);
        }
        let iova = memory.iova();
        base.memory = Some(memory);
        let made = self.create_xrc_objects(&mut base.objects, iova);
        made.map_err(CreateQpError::Command)
    }

    fn create_xrc_objects(&self, objects: &mut Objects, iova: u64) -> Result<(), CommandError> {
        let pdn = match objects.pdn {
            Some(pdn) => pdn,
            None => self.execute(&AllocPdIn::new())?.pd(),
        };
        objects.pdn = Some(pdn);
        let xrcdn = match objects.xrcdn {
            Some(xrcdn) => xrcdn,
            None => self.execute(&AllocXrcdIn::new())?.xrcd(),
        };
        objects.xrcdn = Some(xrcdn);
        let cqn = match objects.cqn {
            Some(cqn) => cqn,
            None => self.create_xrc_cq(iova)?,
        };
        objects.cqn = Some(cqn);
        if objects.srqn.is_none() {
            objects.srqn = Some(self.create_xrc_srq(iova, pdn, xrcdn, cqn)?);
        }
        Ok(())
    }

    fn create_xrc_cq(&self, iova: u64) -> Result<u32, CommandError> {
        let mut command = CreateCqIn::new();
        command
            .cq_context_mut()
            .set_log_cq_size(LOG_ENTRIES)
            .set_uar_page(self.uar().number())
            .set_c_eqn_or_apu_element(self.completion_eqn(0).0.into())
            .set_dbr_addr(iova + CQ_RECORD);
        let tail = TailIn::Qwords(1, &mut |_| iova);
        Ok(self.execute_with(&command, tail, &mut [])?.cqn())
    }

    fn create_xrc_srq(
        &self,
        iova: u64,
        pdn: u32,
        xrcdn: u32,
        cqn: u32,
    ) -> Result<u32, CommandError> {
        let record = iova + SRQ_RECORD;
        let mut command = CreateXrcSrqIn::new();
        command
            .xrc_srq_context_entry_mut()
            .set_log_xrc_srq_size(LOG_ENTRIES)
            .set_log_rq_stride(LOG_SRQ_STRIDE - 4)
            .set_xrcd(xrcdn)
            .set_cqn(cqn)
            .set_user_index(NO_USER_INDEX)
            .set_pd(pdn)
            .set_db_record_addr_h((record >> 32) as u32)
            .set_db_record_addr_l((record as u32) >> 2);
        let tail = TailIn::Qwords(1, &mut |_| iova + SRQ_RING as u64);
        Ok(self.execute_with(&command, tail, &mut [])?.xrc_srqn())
    }

    /// Destroys the objects. What the firmware refuses to destroy stays for the next use.
    fn destroy_xrc_base(&self, base: &mut XrcBase) {
        match self.destroy_xrc_objects(&mut base.objects) {
            Ok(()) => {
                if let Some(memory) = base.memory.take() {
                    memory.free(self.platform());
                }
            }
            Err(error) => log::warn!("objects that XRC needs stay: {error}"),
        }
    }

    fn destroy_xrc_objects(&self, objects: &mut Objects) -> Result<(), CommandError> {
        if let Some(srqn) = objects.srqn {
            self.execute(DestroyXrcSrqIn::new().set_xrc_srqn(srqn))?;
            objects.srqn = None;
        }
        if let Some(cqn) = objects.cqn {
            self.execute(DestroyCqIn::new().set_cqn(cqn))?;
            objects.cqn = None;
        }
        if let Some(xrcdn) = objects.xrcdn {
            self.execute(DeallocXrcdIn::new().set_xrcd(xrcdn))?;
            objects.xrcdn = None;
        }
        if let Some(pdn) = objects.pdn {
            self.execute(DeallocPdIn::new().set_pd(pdn))?;
            objects.pdn = None;
        }
        Ok(())
    }
}
