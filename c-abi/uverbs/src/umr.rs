//! Regions that get other rights, or another domain, and keep their keys: by work requests of a queue pair that may change
//! all keys, as `mlx5_ib` has one (drivers/infiniband/hw/mlx5/umr.c).

use std::time::Duration;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::barrier::{read_barrier, write_barrier};
use bareverbs_node::verbs::firmware_cmds::caps::HcaCap;
use bareverbs_node::verbs::firmware_cmds::cq::CreateCqIn;
use bareverbs_node::verbs::firmware_cmds::cqe;
use bareverbs_node::verbs::firmware_cmds::doorbell::{SEND, UAR_SIZE};
use bareverbs_node::verbs::firmware_cmds::mkey::Mkc;
use bareverbs_node::verbs::firmware_cmds::numbers::Qpn;
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::firmware_cmds::qp::{
    CreateQpIn, Init2rtrQpIn, Rst2initQpIn, Rtr2rtsQpIn,
};
use bareverbs_node::verbs::firmware_cmds::values::{CqeSize, PathMigration, QpServiceType, RqType};
use bareverbs_node::verbs::firmware_cmds::word::Word;
use bareverbs_node::verbs::firmware_cmds::wqe::umr::{MUST_NOT_BE_FREE, mask};
use bareverbs_node::verbs::firmware_cmds::wqe::{
    self, ControlFlags, ControlWord, UmrMaskWord, UmrWord,
};
use bareverbs_node::verbs::{Access, Buffer, Device, Pd, Platform, TailIn};

use crate::attrs::{Result, refused, unregistered};
use crate::queues::Uar;
use crate::raw::Made;

const PAGE: usize = 4096;
/// Entries of both rings, of 64 bytes each, are a page.
const LOG_ENTRIES: u8 = 6;
const ENTRY: usize = 64;
/// Entries of a work request: its control segments, and the context of the key.
const BLOCKS: u16 = 2;
const WQE: usize = ENTRY * BLOCKS as usize;
/// Places in the memory: the send ring, the completions, and both doorbell records.
const CQ: usize = PAGE;
const RECORD: usize = 2 * PAGE;
const CQ_RECORD: usize = RECORD + ENTRY;
/// The last byte of a completion has its opcode, and the bit that tells one round of the ring from the next.
const LAST: usize = ENTRY - 1;
/// The time that a work request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rights that a key changes by: `can_use_umr_rereg_access`.
const CHANGEABLE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::RELAXED_ORDERING);

/// The queue pair, its memory and its completions.
pub(crate) struct Umr<'d> {
    device: &'d Device<'d, P>,
    qp: Made<'d>,
    cq: Made<'d>,
    /// It is there until the queue pair is destroyed.
    memory: Option<Buffer<'d, P>>,
    uar: Uar<'d>,
    _pd: Pd<'d, P>,
    /// Entries of the send ring that were used, and completions, since the beginning.
    posted: u16,
    completed: u32,
}

/// Returns `true` if the device changes a key from some rights to others: `mlx5r_umr_can_reconfig`.
pub(crate) fn can_change(caps: &HcaCap, from: Access, to: Access) -> bool {
    let differs = |right| (from ^ to).contains(right);
    let atomic = differs(Access::REMOTE_ATOMIC) && caps.umr_modify_atomic_disabled();
    let ordering = differs(Access::RELAXED_ORDERING)
        && (caps.relaxed_ordering_write() && !caps.relaxed_ordering_write_umr()
            || caps.relaxed_ordering_read() && !caps.relaxed_ordering_read_umr());
    CHANGEABLE.contains(from ^ to) && !atomic && !ordering
}

/// The context with the rights, and which of its fields count.
fn context(caps: &HcaCap, access: Access, pdn: u32, key: u32) -> (Mkc, u64) {
    let relaxed = access.contains(Access::RELAXED_ORDERING);
    let mut context = Mkc::ZERO;
    context
        .set_lr(true)
        .set_lw(access.contains(Access::LOCAL_WRITE))
        .set_rr(access.contains(Access::REMOTE_READ))
        .set_rw(access.contains(Access::REMOTE_WRITE))
        .set_a(access.contains(Access::REMOTE_ATOMIC))
        .set_relaxed_ordering_write(relaxed)
        .set_relaxed_ordering_read(relaxed)
        .set_pd(pdn)
        .set_qpn(Qpn::ANY.number())
        .set_mkey_7_0(key as u8);
    let fields = [
        (mask::LR | mask::LW | mask::RR | mask::RW | mask::PD, true),
        (mask::A, !caps.umr_modify_atomic_disabled()),
        (
            mask::RELAXED_ORDERING_WRITE,
            caps.relaxed_ordering_write_umr(),
        ),
        (
            mask::RELAXED_ORDERING_READ,
            caps.relaxed_ordering_read_umr(),
        ),
    ];
    let given = fields.iter().filter(|(_, given)| *given);
    (context, given.fold(0, |all, (field, _)| all | field))
}

impl<'d> Umr<'d> {
    /// Makes the queue pair, which completes into a CQ of its own; `eqn` is the event queue that this names.
    pub(crate) fn new(device: &'d Device<'d, P>, eqn: u32) -> Result<Self> {
        let pd = device.alloc_pd().map_err(refused)?;
        let memory = pd.alloc_buffer(3 * PAGE, Access::LOCAL_WRITE);
        let memory = memory.map_err(unregistered)?;
        let uar = Uar::alloc(device)?;
        let page = |at: usize| memory.addr() + at as u64;
        let mut create = CreateCqIn::new();
        create
            .cq_context_mut()
            .set_cqe_sz(CqeSize::Bytes64.number())
            .set_log_cq_size(LOG_ENTRIES)
            .set_uar_page(uar.number)
            .set_c_eqn_or_apu_element(eqn)
            .set_dbr_addr(page(CQ_RECORD));
        // No entry is the device's before it has written it.
        let nothing = (cqe::Opcode::Invalid as u8) << 4 | 1;
        memory.fill(CQ, PAGE, nothing).map_err(|_| libc::EIO)?;
        let tail = TailIn::Qwords(1, &mut |_| page(CQ));
        let created = device.execute_with(&create, tail, &mut []);
        let cqn = created.map_err(refused)?.cqn();
        let cq = Made::new(device, Opcode::DestroyCq, 0, cqn);
        let mut create = CreateQpIn::new();
        create
            .qpc_mut()
            .set_st(QpServiceType::RegUmr.number())
            .set_pm_state(PathMigration::Migrated.number())
            .set_pd(pd.pdn().number())
            .set_cqn_snd(cqn)
            .set_cqn_rcv(cqn)
            .set_rq_type(RqType::ZeroSize.number())
            .set_log_sq_size(LOG_ENTRIES)
            .set_uar_page(uar.number)
            .set_dbr_addr(page(RECORD));
        let tail = TailIn::Qwords(1, &mut |_| page(0));
        let created = device.execute_with(&create, tail, &mut []);
        let qpn = created.map_err(refused)?.qpn();
        let qp = Made::new(device, Opcode::DestroyQp, 0, qpn);
        activate(device, qpn)?;
        Ok(Self {
            device,
            qp,
            cq,
            memory: Some(memory),
            uar,
            _pd: pd,
            posted: 0,
            completed: 0,
        })
    }

    /// Gives a key other rights and a domain. After an error the queue pair is of no more use.
    pub(crate) fn change(&mut self, key: u32, access: Access, pdn: u32) -> Result<()> {
        let caps = &self.device.capabilities().hca;
        let (context, fields) = context(caps, access, pdn, key);
        let qpn = Qpn::from_low_bits(self.qp.number);
        let mut request = [0; WQE];
        let mut control = ControlWord::of_queue(qpn);
        control.set_wqe_index(self.posted);
        control.set_opcode(wqe::Opcode::Umr as u8);
        control.set_ds((WQE / wqe::SEGMENT_UNIT) as u8);
        control.write(&mut request);
        let mut flags = ControlFlags(0);
        flags.set_imm(key);
        flags.set_fm_ce_se(wqe::completion::ALWAYS);
        flags.write(&mut request);
        let mut head = [0; ENTRY - wqe::SEGMENT_UNIT];
        let mut word = UmrWord(0);
        word.set_check(MUST_NOT_BE_FREE);
        word.write(&mut head);
        UmrMaskWord(fields).write(&mut head);
        request[wqe::SEGMENT_UNIT..ENTRY].copy_from_slice(&head);
        request[ENTRY..].copy_from_slice(&context.0);
        self.post(&request)?;
        self.wait()
    }

    fn memory(&self) -> Result<&Buffer<'d, P>> {
        self.memory.as_ref().ok_or(libc::EIO)
    }

    fn post(&mut self, request: &[u8; WQE]) -> Result<()> {
        let ring = 1_u16 << LOG_ENTRIES;
        let at = usize::from(self.posted % ring) * ENTRY;
        self.posted = self.posted.wrapping_add(BLOCKS);
        let memory = self.memory()?;
        let put = |at, bytes: &[u8]| memory.copy_in(at, bytes).map_err(|_| libc::EIO);
        put(at, request)?;
        write_barrier();
        put(RECORD + 4, &u32::from(self.posted).to_be_bytes())?;
        write_barrier();
        let (control, _) = request.split_at(8);
        let word = control
            .first_chunk()
            .map_or(0, |it| u64::from_be_bytes(*it));
        let doorbell = self.uar.number as usize * UAR_SIZE + SEND;
        self.device.platform().write_be64(doorbell, word);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let entries = 1_u32 << LOG_ENTRIES;
        let at = CQ + (self.completed % entries) as usize * ENTRY;
        let round = (self.completed / entries % 2) as u8;
        let platform = self.device.platform();
        let end = platform.now() + PATIENCE;
        let memory = self.memory()?;
        let get = |bytes: &mut [u8]| memory.copy_out(at, bytes).map_err(|_| libc::EIO);
        let mut entry = [0; ENTRY];
        loop {
            get(&mut entry)?;
            let last = entry[LAST];
            if last >> 4 != cqe::Opcode::Invalid as u8 && last & 1 == round {
                break;
            }
            if platform.now() > end {
                return Err(libc::EIO);
            }
            platform.relax();
        }
        read_barrier();
        get(&mut entry)?;
        let completed = self.completed.wrapping_add(1);
        let put = memory.copy_in(CQ_RECORD, &completed.to_be_bytes());
        put.map_err(|_| libc::EIO)?;
        self.completed = completed;
        match entry[LAST] >> 4 == cqe::Opcode::Requester as u8 {
            true => Ok(()),
            false => Err(libc::EFAULT),
        }
    }
}

impl Drop for Umr<'_> {
    fn drop(&mut self) {
        let gone = self.qp.destroy().and_then(|()| self.cq.destroy());
        if gone.is_err() {
            // The device may use it for ever.
            std::mem::forget(self.memory.take());
        }
    }
}

/// Makes it ready to send: `mlx5r_umr_qp_rst2rts`.
fn activate(device: &Device<'_, P>, qpn: u32) -> Result<()> {
    let migrated = PathMigration::Migrated.number();
    let mut init = Rst2initQpIn::new();
    init.set_qpn(qpn);
    init.qpc_mut()
        .set_pm_state(migrated)
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    device.execute(&init).map_err(refused)?;
    let mut rtr = Init2rtrQpIn::new();
    rtr.set_qpn(qpn);
    rtr.qpc_mut()
        .set_pm_state(migrated)
        .set_mtu(5)
        .set_log_msg_max(12)
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    device.execute(&rtr).map_err(refused)?;
    let mut rts = Rtr2rtsQpIn::new();
    rts.set_qpn(qpn);
    rts.qpc_mut().set_pm_state(migrated);
    device.execute(&rts).map(drop).map_err(refused)
}
