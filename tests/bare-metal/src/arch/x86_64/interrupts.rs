//! The processor's interrupts: exceptions, which end the run; the card's MSI-X vectors, which are remembered; and the local
//! APIC's timer, which ends a sleep.

// UNSAFETY: loads descriptor tables, and has the processor call this code at any time.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::exit::exit;
use super::{clock, paging, port};
use crate::error::MachineError;
use crate::run::Status;

global_asm!(include_str!("traps.s"));

/// Traps that have an entry.
const TRAPS: usize = 64;
const TIMER: u8 = 0x2f;
/// The first of the card's.
const CARD: u8 = 0x30;
/// The number of vectors that the card has at most.
pub const CARD_VECTORS: u16 = 15;
const SPURIOUS: u8 = 0x3f;

/// The local APIC, and its registers.
const APIC: u64 = 0xfee0_0000;
const APIC_ID: usize = 0x20;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS_VECTOR: usize = 0xf0;
const TIMER_VECTOR: usize = 0x320;
const TIMER_COUNT: usize = 0x380;
const TIMER_CURRENT: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;
const MASKED: u32 = 1 << 16;

/// The card's vectors that were raised and not yet waited for.
static RAISED: AtomicU64 = AtomicU64::new(0);
/// Ticks of the timer in a second.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// A stack for exceptions, which may come because there is none.
#[repr(C, align(16))]
struct EmergencyStack([u8; 8192]);
static mut EMERGENCY: EmergencyStack = EmergencyStack([0; 8192]);

/// The task state segment: nothing but where exceptions have their stack.
#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    stacks: [u64; 3],
    reserved_too: u64,
    interrupt_stacks: [u64; 7],
    rest: [u32; 3],
}

static mut TASK: TaskState = TaskState {
    reserved: 0,
    stacks: [0; 3],
    reserved_too: 0,
    interrupt_stacks: [0; 7],
    rest: [0, 0, 104 << 16],
};

/// Code, data, and the task state's two words.
static mut SEGMENTS: [u64; 5] = [0, 0x0020_9b00_0000_0000, 0x0000_9300_0000_0000, 0, 0];
static mut GATES: [[u64; 2]; TRAPS] = [[0; 2]; TRAPS];

/// The operand of `lgdt` and `lidt`.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

unsafe extern "C" {
    /// The entries, 16 bytes each.
    static traps: u8;
}

/// Takes exceptions. Interrupts stay off.
pub(crate) fn init() {
    // SAFETY: called once, before anything else uses these tables; they are static, and the entries are code that is fit
    // for what the processor pushes.
    unsafe {
        let stack = (&raw const EMERGENCY) as u64 + size_of::<EmergencyStack>() as u64;
        (&raw mut TASK.interrupt_stacks).write_unaligned([stack, 0, 0, 0, 0, 0, 0]);
        let task = (&raw const TASK) as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        // An available 64-bit task state segment.
        SEGMENTS[3] = limit | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56;
        SEGMENTS[4] = task >> 32;
        let mut gates = [[0; 2]; TRAPS];
        for (number, gate) in gates.iter_mut().enumerate() {
            let entry = (&raw const traps) as u64 + 16 * number as u64;
            // Exceptions on the emergency stack, interrupts on that which is in use.
            let stack = u64::from(number < 32);
            let low = entry & 0xffff | 8 << 16 | stack << 32 | 0x8e << 40;
            *gate = [low | (entry >> 16 & 0xffff) << 48, entry >> 32];
        }
        GATES = gates;
        let segments = Pointer {
            limit: size_of::<[u64; 5]>() as u16 - 1,
            base: (&raw const SEGMENTS) as u64,
        };
        let gates = Pointer {
            limit: size_of::<[[u64; 2]; TRAPS]>() as u16 - 1,
            base: (&raw const GATES) as u64,
        };
        asm!(
            "lgdt [{segments}]",
            "lidt [{gates}]",
            "mov ax, 24",
            "ltr ax",
            segments = in(reg) &raw const segments,
            gates = in(reg) &raw const gates,
            out("ax") _,
            options(nostack)
        );
    }
}

/// Sets the local APIC up, so that there can be interrupts other than exceptions.
pub fn enable() -> Result<(), MachineError> {
    paging::map_registers(&(APIC..APIC + 4096))?;
    // SAFETY: the old interrupt controllers are masked and unused; the rest are registers of the APIC of the only
    // processor in use.
    unsafe {
        port::write_u8(0x21, 0xff);
        port::write_u8(0xa1, 0xff);
    }
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
    write(TIMER_VECTOR, MASKED | u32::from(TIMER));
    // By 16.
    write(TIMER_DIVIDE, 3);
    write(TIMER_COUNT, u32::MAX);
    let rate = clock::rate();
    let mut before = 0;
    for _ in 0..8 {
        // It counts down.
        let (cycles, ticks) = clock::measure(|| !read(TIMER_CURRENT), u32::MAX, 100_000)
            .ok_or(MachineError::ClockStands)?;
        let ticks = (u128::from(ticks) * u128::from(rate) / u128::from(cycles.max(1))) as u64;
        if ticks.abs_diff(before) < ticks / 20 {
            TICKS.store(ticks, Ordering::Relaxed);
            write(TIMER_COUNT, 0);
            write(TIMER_VECTOR, u32::from(TIMER));
            return Ok(());
        }
        before = ticks;
    }
    Err(MachineError::ClockUnsteady)
}

fn register(offset: usize) -> *mut u32 {
    (APIC as *mut u8).wrapping_add(offset).cast()
}

fn read(offset: usize) -> u32 {
    // SAFETY: only called with registers of the APIC, once that is mapped.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: usize, value: u32) {
    // SAFETY: as above.
    unsafe { register(offset).write_volatile(value) }
}

/// Address and data that raise a vector of the card (its MSI-X entry), if there is one of this number.
pub(crate) fn message(vector: u16) -> Option<(u64, u32)> {
    let id = u64::from(read(APIC_ID) >> 24);
    let data = u32::from(CARD) + u32::from(vector);
    (vector < CARD_VECTORS).then_some((APIC | id << 12, data))
}

/// Sleeps until one of the vectors, a bit each, was raised since the last wait for it, or until `deadline`. Whether one was.
pub fn wait(vectors: u64, deadline: Duration) -> bool {
    loop {
        // Interrupts are off, so that none is missed between here and the sleep.
        if RAISED.fetch_and(!vectors, Ordering::AcqRel) & vectors != 0 {
            return true;
        }
        let now = clock::since_boot();
        if now >= deadline {
            return false;
        }
        sleep(deadline - now);
    }
}

/// Sleeps until any interrupt, for so long at most.
fn sleep(time: Duration) {
    let ticks = u128::from(TICKS.load(Ordering::Relaxed)) * time.as_nanos() / 1_000_000_000;
    // What is further away than the timer reaches is slept for in parts.
    write(TIMER_COUNT, u32::try_from(ticks).unwrap_or(u32::MAX).max(1));
    // SAFETY: the tables are set up; an interrupt that is pending comes after `hlt` has started, and ends it.
    unsafe { asm!("sti", "hlt", "cli") };
    write(TIMER_COUNT, 0);
}

/// Called by the entries of interrupts.
#[unsafe(no_mangle)]
extern "C" fn interrupt(number: u64) {
    if number == u64::from(SPURIOUS) {
        return;
    }
    if let Some(vector) = number.checked_sub(u64::from(CARD)) {
        RAISED.fetch_or(1 << vector, Ordering::AcqRel);
    }
    write(END_OF_INTERRUPT, 0);
}

/// Called by the entries of exceptions.
#[unsafe(no_mangle)]
extern "C" fn exception(number: u64, error: u64, at: u64, address: u64) -> ! {
    log::error!(
        "exception {number}, error code {error:#x}, at {at:#x}, page fault address {address:#x}"
    );
    exit(Status::Broken)
}
