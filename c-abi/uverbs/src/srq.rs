//! Shared receive queues over rings and records of the program's, and domains of extended reliable connections.

use std::collections::HashMap;
use std::rc::{Rc, Weak};

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::domain::DeallocXrcdIn;
use bareverbs_node::verbs::firmware_cmds::srq::{
    ArmXrcSrqIn, CreateRmpIn, CreateXrcSrqIn, DestroyRmpIn, DestroyXrcSrqIn, ModifyRmpIn,
    QueryRmpIn, QueryXrcSrqIn,
};
use bareverbs_node::verbs::firmware_cmds::values::{ArmXrcSrq, RmpState, WqType};
use bareverbs_node::verbs::{CommandError, Device, TailIn};

use crate::abi::{CreateXsrqIn, Mlx5CreateSrqIn};
use crate::attrs::{Result, refused};
use crate::queues::{Mapped, record, ring, undone};

/// The offset of a receive memory pool's ring has this unit.
const RMP_UNIT: u64 = 128;

/// A handle of a domain: a QP or SRQ made by it holds it, and it is not closed before.
pub(crate) struct Opened<'d>(pub(crate) Rc<Xrcd<'d>>);

/// A domain, which is given back with its last user.
pub(crate) struct Xrcd<'d> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) number: u32,
}

impl Drop for Xrcd<'_> {
    fn drop(&mut self) {
        let mut command = DeallocXrcdIn::new();
        command.set_xrcd(self.number);
        // One that the firmware does not take back stays.
        let _ = self.device.execute(&command).map_err(refused);
    }
}

/// The domains of files, by device and inode.
#[derive(Default)]
pub(crate) struct Domains<'d>(pub(crate) HashMap<(u64, u64), Weak<Xrcd<'d>>>);

pub(crate) struct Srq<'d> {
    device: &'d Device<'d, P>,
    pub(crate) srqn: u32,
    pub(crate) pdn: u32,
    _memory: [Mapped<'d>; 2],
    /// Domain of an XRC SRQ, which is another object of the firmware.
    xrcd: Option<Rc<Opened<'d>>>,
    pub(crate) user_handle: u64,
    pub(crate) entries: u32,
    pub(crate) max_sge: u32,
    pub(crate) events: u32,
}

impl<'d> Srq<'d> {
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        (pdn, cqn, uid): (u32, u32, u16),
        xrcd: Option<Rc<Opened<'d>>>,
        wanted: &CreateXsrqIn,
        provided: &Mlx5CreateSrqIn,
    ) -> Result<Self> {
        let caps = &device.capabilities().hca;
        let most_sge = u32::from(caps.max_wqe_sz_rq()) / 16;
        if wanted.max_wr >= 1 << caps.log_max_srq_sz() || wanted.max_sge > most_sge {
            return Err(libc::EINVAL);
        }
        let entries = (wanted.max_wr + 1).next_power_of_two();
        let stride = (16 + 16 * wanted.max_sge).next_power_of_two().max(32);
        let (log_entries, log_stride) = (entries.ilog2() as u8, stride.ilog2() as u8);
        if xrcd.is_none() && !provided.buf_addr.is_multiple_of(RMP_UNIT) {
            return Err(libc::EINVAL);
        }
        let mut memory = [
            ring(
                device,
                provided.buf_addr,
                u64::from(entries) * u64::from(stride),
            )?,
            record(device, provided.db_addr)?,
        ];
        let (offset, address) = (memory[0].offset(), memory[1].iova());
        let mut page = |index| memory[0].page(index);
        let tail = TailIn::Qwords(memory[0].pages(), &mut page);
        let created = match &xrcd {
            Some(xrcd) => {
                let mut command = CreateXrcSrqIn::new();
                command
                    .xrc_srq_context_entry_mut()
                    .set_log_xrc_srq_size(log_entries)
                    .set_log_rq_stride(log_stride - 4)
                    .set_wq_signature(provided.flags & 1 != 0)
                    .set_xrcd(xrcd.0.number)
                    .set_page_offset(offset)
                    .set_cqn(cqn)
                    .set_user_index(provided.uidx & 0xff_ffff)
                    .set_pd(pdn)
                    .set_db_record_addr_h((address >> 32) as u32)
                    .set_db_record_addr_l((address as u32) >> 2);
                let created = device.execute_with(&command, tail, &mut []);
                created.map(|out| out.xrc_srqn())
            }
            None => {
                let mut command = CreateRmpIn::new();
                command.set_uid(uid);
                let context = command.ctx_mut();
                context.set_state(RmpState::Ready.number());
                context
                    .wq_mut()
                    .set_wq_type(WqType::LinkedList.number())
                    .set_wq_signature(provided.flags & 1 != 0)
                    .set_pd(pdn)
                    .set_page_offset(offset / 2)
                    .set_log_wq_stride(log_stride)
                    .set_log_wq_sz(log_entries)
                    .set_dbr_addr(address);
                let created = device.execute_with(&command, tail, &mut []);
                created.map(|out| out.rmpn())
            }
        };
        let srqn = created.map_err(|error| undone(error, &mut memory))?;
        Ok(Self {
            device,
            srqn,
            pdn,
            _memory: memory,
            xrcd,
            user_handle: wanted.user_handle,
            entries,
            max_sge: wanted.max_sge,
            events: 0,
        })
    }

    /// Returns `true` if it is one of XRC.
    pub(crate) fn is_xrc(&self) -> bool {
        self.xrcd.is_some()
    }

    /// Arms its limit.
    pub(crate) fn arm(&self, limit: u16) -> Result<(), CommandError> {
        if self.is_xrc() {
            let mut command = ArmXrcSrqIn::new();
            command
                .set_op_mod(ArmXrcSrq::XrcSrq.number())
                .set_xrc_srqn(self.srqn)
                .set_lwm(limit);
            return self.device.execute(&command).map(drop);
        }
        let ready = RmpState::Ready.number();
        let mut command = ModifyRmpIn::new();
        command.set_rmp_state(ready).set_rmpn(self.srqn);
        command.bitmask_mut().set_lwm(true);
        let context = command.ctx_mut();
        context.set_state(ready);
        context.wq_mut().set_lwm(limit).set_pd(self.pdn);
        self.device.execute(&command).map(drop)
    }

    pub(crate) fn limit(&self) -> Result<u16, CommandError> {
        if self.is_xrc() {
            let mut command = QueryXrcSrqIn::new();
            command.set_xrc_srqn(self.srqn);
            let found = self.device.execute(&command)?;
            return Ok(found.xrc_srq_context_entry().lwm());
        }
        let mut command = QueryRmpIn::new();
        command.set_rmpn(self.srqn);
        let found = self.device.execute(&command)?;
        Ok(found.rmp_context().wq().lwm())
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        let done = if self.is_xrc() {
            let mut command = DestroyXrcSrqIn::new();
            command.set_xrc_srqn(self.srqn);
            self.device.execute(&command).map(drop)
        } else {
            let mut command = DestroyRmpIn::new();
            command.set_rmpn(self.srqn);
            self.device.execute(&command).map(drop)
        };
        done.map_err(refused)
    }
}
