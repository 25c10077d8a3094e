//! The processor's interrupts. Exceptions end the run. The interrupts of devices, the card's MSI-X vectors through GICv2m
//! and the timer that ends a sleep, stay masked: one that is pending ends a sleep all the same, and then the interrupt
//! controller (GICv2) is asked which. Nothing is ever interrupted, so that there is nothing to save.

// UNSAFETY: the interrupt controller's registers are in memory, and the timer's in the processor.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use spin::Once;

use super::clock;
use super::exit::exit;
use crate::error::MachineError;
use crate::firmware::device_tree::Interrupts;
use crate::registers::Registers;
use crate::run::Status;

global_asm!(include_str!("vectors.s"));

/// The number of vectors that the card has at most.
pub const CARD_VECTORS: u16 = 15;
/// No sleep is longer; what is further away is slept for in parts.
const LONGEST: Duration = Duration::from_secs(60);

/// The distributor's registers: for each interrupt a bit, or for some a byte, or two bits.
const DISTRIBUTOR_CONTROL: usize = 0;
const ENABLE: usize = 0x100;
const PRIORITY: usize = 0x400;
const TARGET: usize = 0x800;
const CONFIGURATION: usize = 0xc00;
/// The processor interface's.
const INTERFACE_CONTROL: usize = 0;
const PRIORITY_MASK: usize = 4;
const ACKNOWLEDGE: usize = 0xc;
const END_OF_INTERRUPT: usize = 0x10;
/// Numbers from here on are no interrupts.
const NONE: u32 = 1020;
/// Of GICv2m: which interrupts it raises, and where their number is written to.
const MSI_TYPE: usize = 8;
const MSI_SET: u64 = 0x40;

/// The interrupt controller's description in the device tree.
static FOUND: Once<Interrupts> = Once::new();
static CONTROLLER: Once<Controller> = Once::new();
/// The card's vectors that were raised and not yet waited for.
static RAISED: AtomicU64 = AtomicU64::new(0);

/// The interrupt controller, set up.
struct Controller {
    distributor: Registers,
    interface: Registers,
    /// Where a message goes, the first one's interrupt, and how many there are.
    message: u64,
    first: u32,
    count: u16,
    timer: u32,
}

// SAFETY: there is one processor, and each access to the registers is one load or store.
unsafe impl Send for Controller {}
// SAFETY: as above.
unsafe impl Sync for Controller {}

/// The boot code has set the exceptions' entries.
pub(crate) fn init() {}

/// Where the interrupt controller is.
pub(super) fn found(interrupts: Interrupts) {
    FOUND.call_once(|| interrupts);
}

/// Sets the interrupt controller up, so that there can be interrupts other than exceptions.
pub fn enable() -> Result<(), MachineError> {
    CONTROLLER.try_call_once(|| {
        let missing = MachineError::NoTree("interrupt controller");
        let controller = Controller::new(FOUND.get().ok_or(missing)?)?;
        controller.start();
        Ok(controller)
    })?;
    Ok(())
}

impl Controller {
    fn new(found: &Interrupts) -> Result<Self, MachineError> {
        let messages = Registers::map(&found.messages)?;
        let kind = messages.read32(MSI_TYPE);
        let first = kind >> 16 & 0x3ff;
        let count = (kind & 0x3ff).min(u32::from(CARD_VECTORS)) as u16;
        // Those below belong to the processor itself.
        if count == 0 || first < 32 || first + u32::from(count) > NONE {
            return Err(MachineError::NoTree("MSI controller"));
        }
        Ok(Self {
            distributor: Registers::map(&found.distributor)?,
            interface: Registers::map(&found.interface)?,
            message: found.messages.start + MSI_SET,
            first,
            count,
            timer: found.timer,
        })
    }

    /// All interrupts that are of use are for this processor, at the same priority.
    fn start(&self) {
        self.distributor.write32(DISTRIBUTOR_CONTROL, 0);
        let messages = self.first..self.first + u32::from(self.count);
        for interrupt in messages.chain([self.timer]) {
            self.change(PRIORITY, interrupt, 8, 0x80);
            // Those of the processor itself have no other target, and their kind is fixed.
            if interrupt >= 32 {
                self.change(TARGET, interrupt, 8, 1);
                // Messages are edges.
                self.change(CONFIGURATION, interrupt, 2, 2);
            }
            let enable = ENABLE + 4 * (interrupt / 32) as usize;
            self.distributor.write32(enable, 1 << (interrupt % 32));
        }
        self.distributor.write32(DISTRIBUTOR_CONTROL, 1);
        self.interface.write32(PRIORITY_MASK, 0xff);
        self.interface.write32(INTERFACE_CONTROL, 1);
    }

    /// Changes the field that an interrupt has in registers of so many bits for each.
    fn change(&self, registers: usize, interrupt: u32, bits: u32, value: u32) {
        let (register, shift) = (interrupt * bits / 32, interrupt * bits % 32);
        let register = registers + 4 * register as usize;
        let others = self.distributor.read32(register) & !(((1 << bits) - 1) << shift);
        self.distributor.write32(register, others | value << shift);
    }

    /// Takes note of everything that is pending. Of the timer there is nothing to note: it has been stopped.
    fn collect(&self) {
        loop {
            let taken = self.interface.read32(ACKNOWLEDGE);
            let interrupt = taken & 0x3ff;
            if interrupt >= NONE {
                return;
            }
            if let Some(vector) = interrupt.checked_sub(self.first)
                && vector < u32::from(self.count)
            {
                RAISED.fetch_or(1 << vector, Ordering::AcqRel);
            }
            self.interface.write32(END_OF_INTERRUPT, taken);
        }
    }
}

/// Address and data that raise a vector of the card (its MSI-X entry), if the controller has that vector.
pub(crate) fn message(vector: u16) -> Option<(u64, u32)> {
    let controller = CONTROLLER.get()?;
    let data = controller.first + u32::from(vector);
    (vector < controller.count).then_some((controller.message, data))
}

/// Sleeps until one of the vectors, a bit each, was raised since the last wait for it, or until `deadline`. Whether one was.
pub fn wait(vectors: u64, deadline: Duration) -> bool {
    let Some(controller) = CONTROLLER.get() else {
        return false;
    };
    loop {
        controller.collect();
        if RAISED.fetch_and(!vectors, Ordering::AcqRel) & vectors != 0 {
            return true;
        }
        let now = clock::since_boot();
        if now >= deadline {
            return false;
        }
        set_timer(Some(deadline.min(now + LONGEST)));
        // SAFETY: an interrupt that is pending, from before or from now on, ends it, though it is masked.
        unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
        set_timer(None);
    }
}

/// Lets the virtual timer interrupt from this time on, or never.
fn set_timer(time: Option<Duration>) {
    let value = time.map_or(u64::MAX, clock::cycles_at);
    let control = u64::from(time.is_some());
    // SAFETY: only this module uses the timer.
    unsafe {
        asm!(
            "msr cntv_cval_el0, {value}",
            "msr cntv_ctl_el0, {control}",
            "isb",
            value = in(reg) value,
            control = in(reg) control,
            options(nostack, preserves_flags)
        );
    }
}

/// Called by the entries of exceptions.
#[unsafe(no_mangle)]
extern "C" fn exception(number: u64, syndrome: u64, at: u64, address: u64) -> ! {
    static AGAIN: AtomicBool = AtomicBool::new(false);
    // One that comes from here says nothing more.
    if !AGAIN.swap(true, Ordering::Relaxed) {
        log::error!(
            "exception {number}, syndrome {syndrome:#x}, at {at:#x}, fault address {address:#x}"
        );
    }
    exit(Status::Broken)
}
