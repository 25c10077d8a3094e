//! A platform that checks the driver's use of it, with a firmware that follows a script.
//!
//! Device addresses have nothing to do with pointers, freed memory is poisoned and never handed out again, and every
//! access of the device to memory that is not its own is recorded. Time is virtual: it moves by one microsecond each time
//! the driver relaxes, which is also when the firmware runs.

// UNSAFETY: implements the platform seam over plain host memory.
#![expect(unsafe_code)]
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod firmware;
mod memory;
pub(crate) mod random;

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bareverbs_core::Platform;
use bareverbs_core::platform::{Dma, DmaError, Mapping};
use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, RoceCap};
use bareverbs_firmware_cmds::event::Event;
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::opcode::Opcode;

use firmware::{Action, Eq, Posted, Script};
use memory::Memory;

pub(crate) const BAR_LEN: usize = 16 << 20;

/// Called by each thread that relaxes, before the firmware runs.
type OnRelax = Arc<dyn Fn(&Fake) + Send + Sync>;

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
    /// The functions other than 0 that have some of them.
    pub(crate) page_owners: BTreeMap<u64, u32>,
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
    /// It says that it has done what it has not, so that signatures of blocks mean nothing.
    pub(crate) lies: bool,
    /// Completions are announced through the event queue.
    pub(crate) doorbells: Vec<(usize, u64)>,
    /// Pages that the firmware answers a "take" with, beside what it really has.
    pub(crate) foreign_pages: Vec<u64>,
    pub(crate) keep_pages: bool,
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
            .set_dct(true)
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
            page_owners: BTreeMap::new(),
            eqs: Vec::new(),
            uar: 3,
            gone: false,
            reads_left: None,
            alive: true,
            obedient: true,
            signing: false,
            lies: false,
            doorbells: Vec::new(),
            foreign_pages: Vec::new(),
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
        self.lock().live_bytes()
    }

    /// Pieces of memory that were written to after they had been given back.
    pub(crate) fn freed_and_changed(&self) -> usize {
        self.lock().freed_and_changed()
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
        inner.allocate(layout)
    }

    unsafe fn dma_free(&self, dma: Dma) {
        self.lock().free(&dma);
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
