//! A platform that hurts, with a firmware that follows a script.
//!
//! Device addresses have nothing to do with pointers, freed memory is poisoned and never handed out again, and every
//! access of the device to memory that is not its own is recorded. Time is virtual: it moves by one microsecond each time
//! the driver relaxes, which is also when the firmware runs.

// UNSAFETY: implements the platform seam over plain host memory.
#![expect(unsafe_code)]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::platform::{Dma, DmaError, Mapping};
use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, RoceCap};
use bareverbs_firmware_cmds::cmdq::{
    BLOCK_DATA_SIZE, CommandQueueEntry, INLINE_SIZE, MailboxBlock, blocks_needed,
};
use bareverbs_firmware_cmds::eq::{CreateEqIn, Eqe};
use bareverbs_firmware_cmds::event::{EQE_SIZE, Event, owner_of_pass};
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::{DeliveryStatus, Status};
use bareverbs_firmware_cmds::values::CapabilityGroup;
use zerocopy::FromBytes;

pub(crate) const BAR_LEN: usize = 16 << 20;
pub(crate) const POISON: u8 = 0xdd;

/// A command as it reached the firmware.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) slot: u8,
    pub(crate) opcode: u16,
    pub(crate) op_mod: u16,
    pub(crate) input: Vec<u8>,
    pub(crate) output_len: usize,
    pub(crate) token: u8,
    pub(crate) at: Duration,
    entry_iova: u64,
}

impl Posted {
    pub(crate) fn is(&self, opcode: Opcode) -> bool {
        self.opcode == opcode.number()
    }

    pub(crate) fn dword(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.input[at..at + 4].try_into().unwrap())
    }
}

/// What the firmware does with a command.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// What it would do anyway.
    Normal,
    /// Answers with this (status OK).
    Answer(Vec<u8>),
    /// Refuses.
    Fail(Status, u32),
    /// Does not deliver.
    Delivery(DeliveryStatus),
    /// Never answers.
    Drop,
    /// Does it later.
    After(Duration, Box<Action>),
    /// Does it normally, but answers with a wrong token in the entry.
    BadToken,
    /// Does it normally, but with a wrong signature of the entry.
    BadEntrySignature,
    /// Does it normally, but with a wrong signature of the last output block.
    BadBlockSignature,
    /// Leaves the bus instead of answering.
    Vanish,
}

type Script = Box<dyn FnMut(&Posted) -> Action + Send>;
/// Called by each thread that relaxes, before the firmware runs.
type OnRelax = Arc<dyn Fn(&Fake) + Send + Sync>;

struct Memory {
    ptr: NonNull<u8>,
    layout: Layout,
    live: bool,
}

// SAFETY: plain memory behind the fake's mutex.
unsafe impl Send for Memory {}

#[derive(Debug, Clone, Copy)]
struct Eq {
    ring: u64,
    log_size: u8,
    producer: u32,
}

pub(crate) struct Inner {
    pub(crate) now: Duration,
    registers: BTreeMap<usize, u32>,
    memory: BTreeMap<u64, Memory>,
    next_iova: u64,
    /// Largest allocation that succeeds.
    pub(crate) largest: usize,
    /// Allocations that still succeed.
    pub(crate) budget: usize,
    /// Device accesses outside live memory.
    pub(crate) faults: Vec<String>,
    pub(crate) script: Option<Script>,
    pub(crate) on_relax: Option<OnRelax>,
    pub(crate) history: Vec<Posted>,
    due: VecDeque<(Duration, Posted, Action)>,
    pub(crate) device_id: Option<u16>,
    pub(crate) boot_pages: u32,
    pub(crate) init_pages: u32,
    pub(crate) issi: u32,
    pub(crate) hca: HcaCap,
    pub(crate) hca_max: HcaCap,
    pub(crate) roce: RoceCap,
    pub(crate) atomic: AtomicCaps,
    /// The pages that the firmware holds.
    pub(crate) pages: BTreeSet<u64>,
    eqs: Vec<Eq>,
    pub(crate) uar: u32,
    pub(crate) gone: bool,
    /// It goes after so many more register reads.
    pub(crate) reads_left: Option<u32>,
    /// The health counter moves.
    pub(crate) alive: bool,
    /// Obeys `nic_interface`.
    pub(crate) obedient: bool,
    pub(crate) signing: bool,
    /// Completions are announced through the event queue.
    pub(crate) doorbells: Vec<(usize, u64)>,
    /// Pages that the firmware answers a "take" with, beside what it really has.
    pub(crate) take_lies: Vec<u64>,
    pub(crate) keep_pages: bool,
}

/// A small random generator (splitmix64), so that a seed is all that a failing test has to print.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

pub(crate) struct Fake(Mutex<Inner>);

impl Fake {
    pub(crate) fn new() -> Self {
        let mut registers = BTreeMap::new();
        registers.insert(registers::FW_REV, 35 << 16 | 16);
        registers.insert(registers::CMDIF_REV_FW_SUB, 5 << 16 | 4030);
        registers.insert(registers::CMDQ_ADDR_L_SZ, 5 << 4 | 6);
        registers.insert(registers::HEALTH + 0x30, 0x1023_0fbe);
        let mut hca = HcaCap::ZERO;
        hca.set_port_type(1)
            .set_num_ports(1)
            .set_roce(true)
            .set_atomic(true)
            .set_cqe_version(1)
            .set_log_max_qp(17)
            .set_log_max_qp_sz(15)
            .set_log_max_cq(24)
            .set_log_max_eq_sz(22)
            .set_log_max_msg(30)
            .set_cmdif_checksum(1);
        let mut hca_max = hca;
        hca_max.set_cmdif_checksum(3).set_log_max_qp(18);
        let mut roce = RoceCap::ZERO;
        roce.set_roce_version(5).set_roce_address_table_size(16);
        let mut atomic = AtomicCaps::ZERO;
        atomic
            .set_atomic_operations(3)
            .set_atomic_size_qp(8)
            .set_supported_atomic_req_8B_endianness_mode_1(true);
        Self(Mutex::new(Inner {
            now: Duration::from_secs(1000),
            registers,
            memory: BTreeMap::new(),
            next_iova: 0x7_0000_0000,
            largest: usize::MAX,
            budget: usize::MAX,
            faults: Vec::new(),
            script: None,
            on_relax: None,
            history: Vec::new(),
            due: VecDeque::new(),
            device_id: None,
            boot_pages: 700,
            init_pages: 40,
            issi: 0b11,
            hca,
            hca_max,
            roce,
            atomic,
            pages: BTreeSet::new(),
            eqs: Vec::new(),
            uar: 3,
            gone: false,
            reads_left: None,
            alive: true,
            obedient: true,
            signing: false,
            doorbells: Vec::new(),
            take_lies: Vec::new(),
            keep_pages: false,
        }))
    }

    pub(crate) fn with(edit: impl FnOnce(&mut Inner)) -> Self {
        let fake = Self::new();
        edit(&mut fake.lock());
        fake
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn script(&self, script: impl FnMut(&Posted) -> Action + Send + 'static) {
        self.lock().script = Some(Box::new(script));
    }

    /// An event in the first event queue.
    pub(crate) fn event(&self, event: Event) {
        self.lock().event(event);
    }

    pub(crate) fn set_register(&self, at: usize, value: u32) {
        self.lock().registers.insert(at, value);
    }

    /// Bytes of DMA memory that were not given back.
    pub(crate) fn live(&self) -> usize {
        let inner = self.lock();
        inner
            .memory
            .values()
            .filter(|memory| memory.live)
            .map(|memory| memory.layout.size())
            .sum()
    }

    /// Pieces of memory that were written to after they had been given back.
    pub(crate) fn freed_and_changed(&self) -> usize {
        let inner = self.lock();
        let changed = |memory: &&Memory| {
            let len = memory.layout.size();
            // SAFETY: allocated until the fake is dropped.
            let bytes = unsafe { std::slice::from_raw_parts(memory.ptr.as_ptr(), len) };
            !memory.live && bytes.iter().any(|&byte| byte != POISON)
        };
        inner.memory.values().filter(changed).count()
    }

    /// Nothing leaked, nothing touched that was not to be touched.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.live(), 0, "DMA memory leaked");
        self.assert_no_faults();
    }

    #[track_caller]
    pub(crate) fn assert_no_faults(&self) {
        let inner = self.lock();
        assert!(
            inner.faults.is_empty(),
            "the device reached beyond its memory: {:?}",
            inner.faults
        );
    }

    pub(crate) fn opcodes(&self) -> Vec<Opcode> {
        let inner = self.lock();
        inner
            .history
            .iter()
            .filter_map(|posted| Opcode::from_number(posted.opcode))
            .collect()
    }
}

impl Inner {
    fn span(&mut self, iova: u64, len: usize, what: &str) -> Option<NonNull<u8>> {
        let found = self
            .memory
            .range(..=iova)
            .next_back()
            .and_then(|(start, memory)| {
                let offset = (iova - start) as usize;
                let inside = memory.live && offset + len <= memory.layout.size();
                // SAFETY: inside the allocation.
                inside.then(|| unsafe { memory.ptr.add(offset) })
            });
        if found.is_none() {
            self.faults
                .push(format!("{what} of {len} bytes at {iova:#x}"));
        }
        found
    }

    pub(crate) fn dma_read(&mut self, iova: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        if let Some(ptr) = self.span(iova, len, "read") {
            // SAFETY: live memory of that length.
            unsafe { std::ptr::copy_nonoverlapping(ptr.as_ptr(), data.as_mut_ptr(), len) };
        }
        data
    }

    pub(crate) fn dma_write(&mut self, iova: u64, data: &[u8]) {
        if let Some(ptr) = self.span(iova, data.len(), "write") {
            // SAFETY: live memory of that length.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), ptr.as_ptr(), data.len()) };
        }
    }

    fn queue_iova(&self) -> u64 {
        let high = self
            .registers
            .get(&registers::CMDQ_ADDR_H)
            .copied()
            .unwrap_or(0);
        let low = self
            .registers
            .get(&registers::CMDQ_ADDR_L_SZ)
            .copied()
            .unwrap_or(0);
        u64::from(high) << 32 | u64::from(low & 0xffff_f000)
    }

    fn take(&mut self, slot: u8) {
        let entry_iova = self.queue_iova() + u64::from(slot) * 64;
        let entry = CommandQueueEntry::read_from_bytes(&self.dma_read(entry_iova, 64)).unwrap();
        assert!(
            entry.ownership(),
            "doorbell for slot {slot}, which the host owns"
        );
        assert!(entry.signature_is_valid(), "wrong signature of the entry");
        assert_eq!(entry.r#type(), 7);
        assert_ne!(entry.token(), 0);
        let len = entry.input_length() as usize;
        let mut input = entry.command_input_inline_data().to_vec();
        let mut block_iova = entry.input_mailbox();
        for number in 0..blocks_needed(len) {
            assert_eq!(block_iova % 1024, 0, "misaligned block");
            let block = MailboxBlock::read_from_bytes(&self.dma_read(block_iova, 576)).unwrap();
            assert!(
                block.signatures_are_valid(),
                "wrong signature of input block {number}"
            );
            assert_eq!(block.block_number() as usize, number);
            assert_eq!(
                block.token(),
                entry.token(),
                "wrong token in block {number}"
            );
            input.extend_from_slice(block.mailbox_data());
            block_iova = block.next_block();
        }
        assert_eq!(block_iova, 0, "the chain goes on behind the message");
        input.truncate(len);
        let posted = Posted {
            slot,
            opcode: u16::from_be_bytes([input[0], input[1]]),
            op_mod: u16::from_be_bytes([input[6], input[7]]),
            output_len: entry.output_length() as usize,
            token: entry.token(),
            at: self.now,
            input,
            entry_iova,
        };
        self.history.push(posted.clone());
        let action = match &mut self.script {
            Some(script) => script(&posted),
            None => Action::Normal,
        };
        self.due.push_back((self.now, posted, action));
    }

    fn run(&mut self) {
        if self.alive {
            let counter = self.registers.entry(registers::HEALTH_COUNTER).or_default();
            *counter = counter.wrapping_add(1) & 0xff_ffff;
        }
        for _ in 0..self.due.len() {
            let Some((at, posted, action)) = self.due.pop_front() else {
                return;
            };
            match action {
                Action::Drop => {}
                Action::Vanish => self.gone = true,
                Action::After(delay, then) => {
                    self.due.push_back((at + delay, posted, *then));
                }
                _ if at > self.now => self.due.push_back((at, posted, action)),
                action => self.perform(&posted, &action),
            }
        }
    }

    fn perform(&mut self, posted: &Posted, action: &Action) {
        let mut entry =
            CommandQueueEntry::read_from_bytes(&self.dma_read(posted.entry_iova, 64)).unwrap();
        if let Action::Delivery(status) = action {
            entry.set_status(status.number()).set_ownership(false);
            self.dma_write(posted.entry_iova, &entry.0);
            return;
        }
        let mut output = match action {
            Action::Answer(output) => output.clone(),
            Action::Fail(status, syndrome) => {
                let mut output = vec![0; 16];
                output[0] = status.number();
                output[4..8].copy_from_slice(&syndrome.to_be_bytes());
                output
            }
            _ => self.answer(posted),
        };
        output.resize(posted.output_len, 0);
        let mut block_iova = entry.output_mailbox();
        let blocks = blocks_needed(posted.output_len);
        for number in 0..blocks {
            let mut block = MailboxBlock::read_from_bytes(&self.dma_read(block_iova, 576)).unwrap();
            assert_eq!(
                block.token(),
                posted.token,
                "wrong token in output block {number}"
            );
            let at = INLINE_SIZE + number * BLOCK_DATA_SIZE;
            let part = &output[at..output.len().min(at + BLOCK_DATA_SIZE)];
            block.mailbox_data_mut()[..part.len()].copy_from_slice(part);
            if self.signing {
                block.sign();
            }
            if matches!(action, Action::BadBlockSignature) && number + 1 == blocks {
                block.0[0x23f] ^= 0x40;
            }
            self.dma_write(block_iova, &block.0);
            block_iova = block.next_block();
        }
        entry
            .command_output_inline_data_mut()
            .copy_from_slice(&output[..16]);
        entry.set_status(0).set_ownership(false);
        if matches!(action, Action::BadToken) {
            entry.set_token(posted.token ^ 0x55);
        }
        if self.signing {
            entry.sign();
        }
        if matches!(action, Action::BadEntrySignature) {
            entry.set_signature(entry.signature() ^ 1);
        }
        self.dma_write(posted.entry_iova, &entry.0[..63]);
        self.dma_write(posted.entry_iova + 63, &entry.0[63..]);
        if !self.eqs.is_empty() && posted.opcode != Opcode::CreateEq.number() {
            self.event(Event::Command {
                slots: 1 << posted.slot,
            });
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.raw_event(event.to_eqe());
    }

    /// An event queue entry of any content; only its owner bit is made right.
    pub(crate) fn raw_event(&mut self, mut entry: Eqe) {
        let Some(mut eq) = self.eqs.first().copied() else {
            return;
        };
        entry.set_owner(owner_of_pass(eq.producer, eq.log_size) != 0);
        let index = u64::from(eq.producer & ((1 << eq.log_size) - 1));
        let iova = eq.ring + index * EQE_SIZE as u64;
        self.dma_write(iova, &entry.0[..63]);
        self.dma_write(iova + 63, &entry.0[63..]);
        eq.producer = eq.producer.wrapping_add(1);
        self.eqs[0] = eq;
    }

    fn answer(&mut self, posted: &Posted) -> Vec<u8> {
        let mut output = vec![0; posted.output_len.max(16)];
        let Some(opcode) = Opcode::from_number(posted.opcode) else {
            output[0] = Status::BadOperation.number();
            return output;
        };
        match opcode {
            Opcode::SetIssi if self.issi & 0b10 == 0 => {
                output[0] = Status::BadParameter.number();
            }
            Opcode::QueryIssi => output[0x6c..0x70].copy_from_slice(&self.issi.to_be_bytes()),
            Opcode::QueryPages => {
                let pages = if posted.op_mod == 1 {
                    self.boot_pages
                } else {
                    self.init_pages
                };
                output[12..16].copy_from_slice(&pages.to_be_bytes());
            }
            Opcode::ManagePages => self.manage_pages(posted, &mut output),
            Opcode::QueryHcaCap => {
                let max = posted.op_mod & 1 == 0;
                let group = CapabilityGroup::from_number(posted.op_mod >> 1);
                let image = match group {
                    Some(CapabilityGroup::General) if max => &self.hca_max.0,
                    Some(CapabilityGroup::General) => &self.hca.0,
                    Some(CapabilityGroup::Roce) => &self.roce.0,
                    Some(CapabilityGroup::Atomic) => &self.atomic.0,
                    _ => panic!("no group {group:?}"),
                };
                output[16..16 + 256].copy_from_slice(image);
            }
            Opcode::SetHcaCap if posted.op_mod == 0 => {
                let image: [u8; 256] = posted.input[16..16 + 256].try_into().unwrap();
                self.hca = HcaCap(image);
                self.signing = self.hca.cmdif_checksum() == 3;
            }
            Opcode::AllocUar => output[8..12].copy_from_slice(&self.uar.to_be_bytes()),
            Opcode::CreateEq => {
                let (create, pages) = CreateEqIn::read_from_prefix(&posted.input).unwrap();
                let context = create.eq_context_entry();
                assert_eq!(
                    pages.len() / 8,
                    (64usize << context.log_eq_size()).div_ceil(4096)
                );
                self.eqs.push(Eq {
                    ring: u64::from_be_bytes(pages[..8].try_into().unwrap()),
                    log_size: context.log_eq_size(),
                    producer: 0,
                });
                output[11] = self.eqs.len() as u8;
            }
            Opcode::DestroyEq => {
                self.eqs.pop();
            }
            Opcode::AccessRegister => output[16..].copy_from_slice(&posted.input[16..]),
            _ => {}
        }
        output
    }

    fn manage_pages(&mut self, posted: &Posted, output: &mut [u8]) {
        match posted.op_mod {
            1 => {
                let count = posted.dword(12) as usize;
                assert_eq!(posted.input.len(), 16 + count * 8);
                for address in posted.input[16..].chunks(8) {
                    let iova = u64::from_be_bytes(address.try_into().unwrap());
                    assert_eq!(iova % 4096, 0);
                    assert!(self.pages.insert(iova), "page {iova:#x} given twice");
                    self.dma_write(iova, &[0xee; 4096]);
                }
            }
            2 => {
                let wanted = posted.dword(12) as usize;
                let mut returned: Vec<u64> = Vec::new();
                if !self.keep_pages {
                    returned.append(&mut self.take_lies);
                    while returned.len() < wanted
                        && let Some(page) = self.pages.pop_first()
                    {
                        returned.push(page);
                    }
                }
                output[8..12].copy_from_slice(&(returned.len() as u32).to_be_bytes());
                for (slot, page) in output[16..].chunks_mut(8).zip(&returned) {
                    slot.copy_from_slice(&page.to_be_bytes());
                }
            }
            _ => {}
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for memory in self.lock().memory.values() {
            // SAFETY: allocated with this layout, freed once: here.
            unsafe { dealloc(memory.ptr.as_ptr(), memory.layout) };
        }
    }
}

// SAFETY: memory stays valid until the fake is dropped, addresses are never reused, and everything runs under one lock.
unsafe impl Platform for Fake {
    fn bar_len(&self) -> usize {
        BAR_LEN
    }

    fn device_id(&self) -> Option<u16> {
        self.lock().device_id
    }

    fn read_be32(&self, offset: usize) -> u32 {
        let mut inner = self.lock();
        if let Some(left) = inner.reads_left {
            inner.reads_left = left.checked_sub(1);
            inner.gone |= left == 0;
        }
        if inner.gone {
            return u32::MAX;
        }
        let value = inner.registers.get(&offset).copied().unwrap_or(0);
        if offset == registers::CMDQ_ADDR_L_SZ && value & 0xfff == 0 {
            value | 5 << 4 | 6
        } else {
            value
        }
    }

    fn write_be32(&self, offset: usize, value: u32) {
        let mut inner = self.lock();
        if inner.gone {
            return;
        }
        match offset {
            registers::CMD_DBELL => {
                for slot in 0..32 {
                    if value >> slot & 1 != 0 {
                        inner.take(slot);
                    }
                }
            }
            registers::CMDQ_ADDR_L_SZ if value >> 8 & 7 != 0 => {
                if inner.obedient {
                    inner.registers.insert(offset, value);
                    inner.due.clear();
                    inner.eqs.clear();
                }
            }
            _ if offset >= 0x3000 => inner.doorbells.push((offset, u64::from(value))),
            _ => {
                inner.registers.insert(offset, value);
            }
        }
    }

    fn write_be64(&self, offset: usize, value: u64) {
        self.lock().doorbells.push((offset, value));
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let mut inner = self.lock();
        if layout.size() > inner.largest || inner.budget == 0 {
            return Err(DmaError::OutOfMemory);
        }
        inner.budget = inner.budget.saturating_sub(1);
        let layout = layout.align_to(64).unwrap();
        // SAFETY: never of size zero in the driver.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(DmaError::OutOfMemory)?;
        let align = layout.align().max(4096) as u64;
        let iova = inner.next_iova.next_multiple_of(align);
        // A hole, so that running over the end is a fault.
        inner.next_iova = iova + layout.size() as u64 + 0x1000;
        let live = true;
        inner.memory.insert(iova, Memory { ptr, layout, live });
        Ok(Dma { ptr, iova, layout })
    }

    unsafe fn dma_free(&self, dma: Dma) {
        let mut inner = self.lock();
        let memory = inner
            .memory
            .get_mut(&dma.iova)
            .expect("freed memory that was never allocated");
        assert!(memory.live, "double free at {:#x}", dma.iova);
        assert_eq!(
            memory.layout.size(),
            dma.layout.size(),
            "freed with another size"
        );
        memory.live = false;
        // SAFETY: still allocated; kept until the fake is dropped.
        unsafe { memory.ptr.write_bytes(POISON, memory.layout.size()) };
    }

    unsafe fn dma_map(&self, _: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        Err(DmaError::TooManyMappings)
    }

    fn page_iova(&self, _: &Mapping, _: usize) -> u64 {
        0
    }

    unsafe fn dma_unmap(&self, _: Mapping) {}

    fn now(&self) -> Duration {
        self.lock().now
    }

    fn relax(&self) {
        let on_relax = self.lock().on_relax.clone();
        if let Some(on_relax) = on_relax {
            on_relax(self);
        }
        let mut inner = self.lock();
        inner.now += Duration::from_micros(1);
        inner.run();
    }
}
