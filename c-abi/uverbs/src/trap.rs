//! Stores to doorbell pages that are read-only.
//!
//! A store raises SIGSEGV. Its handler looks at the doorbell records and goes on behind the store. It runs in the program's
//! thread at an instruction of libmlx5, which has no lock of this library's. Where an instruction is unknown, or the program
//! takes the signal, the pages can be written to from then on, and the library's thread looks at the records.

// UNSAFETY: a signal's handler that changes the thread's registers, and protection of memory.
#![expect(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t, sigset_t, ucontext_t};

use crate::real;

const PAGE: usize = 4096;
/// Mapped doorbell pages that are told apart.
const MOST: usize = 256;
/// `SEGV_ACCERR`: the page is there, and may not be accessed so.
const DENIED: c_int = 2;

/// Addresses of pages that the program has mapped; 0 for none.
static MAPPED: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
/// Pages can be written to, and the library's thread looks at the records.
static OPEN: AtomicBool = AtomicBool::new(true);
/// The pages are a card's, which sees stores itself.
static CARD: AtomicBool = AtomicBool::new(false);
/// The action that the signal had before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// The function that looks at the doorbell records.
static RING: OnceLock<fn()> = OnceLock::new();
/// Stores that were seen.
pub(crate) static TRAPS: AtomicUsize = AtomicUsize::new(0);

/// Returns `true` if the library has to poll the records.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Acquire) && !is_card()
}

/// Returns `true` if the pages are a card's.
pub(crate) fn is_card() -> bool {
    CARD.load(Ordering::Acquire)
}

/// The pages are a card's: stores reach it directly, and the server does not look at records.
pub(crate) fn leave_to_card() {
    CARD.store(true, Ordering::Release);
}

/// Takes the signal, unless the environment says that the thread is to look. `ring` looks at the doorbell records.
pub(crate) fn start(ring: fn()) {
    if cfg!(not(target_arch = "x86_64")) || std::env::var_os("BAREVERBS_DOORBELLS").is_some() {
        return;
    }
    let _ = RING.set(ring);
    // SAFETY: the structures are whole, and the handler is of the type that SA_SIGINFO wants. What was before is there when it
    // is first called.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        // On the thread's own stack: others are too small for the model.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // No other handler runs while the model does.
        action.sa_mask = all_but_faults();
        if real::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before) != 0
            || BEFORE.set(before).is_err()
            || real::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) != 0
        {
            return;
        }
    }
    OPEN.store(false, Ordering::Release);
}

/// All signals but those that a thread raises by its own instructions.
pub(crate) fn all_but_faults() -> sigset_t {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, fault);
        }
        all
    }
}

/// Another handler comes: the pages can be written to from now on.
pub(crate) fn end() {
    OPEN.store(true, Ordering::Release);
    for page in &MAPPED {
        let page = page.load(Ordering::Acquire);
        if page != 0 {
            protect(page, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
}

fn protect(page: usize, protection: c_int) -> bool {
    // SAFETY: the page is a doorbell page that the program has mapped.
    unsafe { libc::mprotect(page as *mut c_void, PAGE, protection) == 0 }
}

/// The program has mapped doorbell pages here.
pub(crate) fn mapped(start: usize, len: usize) {
    if is_card() {
        // A child would keep the card open.
        // SAFETY: the program has just mapped it.
        unsafe { libc::madvise(start as *mut c_void, len, libc::MADV_DONTFORK) };
        return;
    }
    for page in (start..start.saturating_add(len)).step_by(PAGE) {
        let free = |place: &AtomicUsize| {
            place
                .compare_exchange(0, page, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        if !is_mapped(page) && !MAPPED.iter().any(free) {
            // Its stores would not be known.
            log::warn!("more than {MOST} doorbell pages: records are polled");
            end();
        }
        if !is_open() {
            protect(page, libc::PROT_READ);
            // Another thread may have opened all pages meanwhile.
            if is_open() {
                protect(page, libc::PROT_READ | libc::PROT_WRITE);
            }
        }
    }
}

fn is_mapped(page: usize) -> bool {
    let known = |place: &AtomicUsize| place.load(Ordering::Acquire) == page;
    page != 0 && MAPPED.iter().any(known)
}

/// The program has given back what it had mapped here.
pub(crate) fn unmapped(start: usize, len: usize) {
    for place in &MAPPED {
        let page = place.load(Ordering::Acquire);
        if page != 0 && (start..start.saturating_add(len)).contains(&page) {
            place.store(0, Ordering::Release);
        }
    }
}

unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's structures, and the calling thread's own number.
    let (address, code, errno, thread) = unsafe {
        (
            (*info).si_addr() as usize,
            (*info).si_code,
            *libc::__errno_location(),
            &mut *context.cast::<ucontext_t>(),
        )
    };
    let page = address & !(PAGE - 1);
    // SAFETY: the thread was interrupted at the store.
    if code == DENIED && is_mapped(page) && is_store(thread) && unsafe { go_on(thread, page) } {
        TRAPS.fetch_add(1, Ordering::Relaxed);
        if let Some(ring) = RING.get() {
            ring();
        }
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = errno };
        return;
    }
    // SAFETY: the handler that was there before gets what it would have got. Without one the instruction is done again, or the
    // signal is sent again, and ends the process.
    unsafe {
        match BEFORE.get() {
            Some(before) if before.sa_sigaction > libc::SIG_IGN => {
                // One that takes the first argument only can be called with more.
                let next: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    std::mem::transmute(before.sa_sigaction);
                next(signal, info, context);
            }
            Some(before) if before.sa_sigaction == libc::SIG_IGN && code <= 0 => {}
            _ => {
                let default: libc::sigaction = std::mem::zeroed();
                real::sigaction(signal, &default, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

/// Lets a thread go on behind its store; or at it, if the page can be written to from now on. Returns `false` if it cannot.
///
/// # Safety
/// As that of [`skip`].
unsafe fn go_on(thread: &mut ucontext_t, page: usize) -> bool {
    // SAFETY: the caller's promise.
    if !is_open() && unsafe { skip(thread) } {
        return true;
    }
    end();
    protect(page, libc::PROT_READ | libc::PROT_WRITE)
}

/// Returns `true` if a fault was one of writing: bit 1 of the error code of a page fault.
#[cfg(target_arch = "x86_64")]
fn is_store(thread: &ucontext_t) -> bool {
    thread.uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_store(_: &ucontext_t) -> bool {
    false
}

/// Goes on behind the store; false if the instruction is not known.
///
/// # Safety
/// The context is that of a thread that was interrupted at an instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn skip(context: &mut ucontext_t) -> bool {
    let place = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    // SAFETY: an instruction of the program, which has up to 15 bytes; those of stores are shorter, and all bytes read are in it.
    match unsafe { store_len(*place as *const u8) } {
        Some(len) => {
            *place += len;
            true
        }
        None => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn skip(_: &mut ucontext_t) -> bool {
    false
}

/// The length of an instruction that stores a register or a number in memory: MOV, MOVNTI, and those of vector registers.
///
/// # Safety
/// It can be read.
#[cfg(target_arch = "x86_64")]
unsafe fn store_len(code: *const u8) -> Option<i64> {
    // SAFETY: the caller's promise.
    let byte = |at: usize| unsafe { code.add(at).read() };
    let mut at = 0;
    let mut short = false;
    while matches!(byte(at), 0x66 | 0xf2 | 0xf3) {
        short |= byte(at) == 0x66;
        at += 1;
    }
    let mut vector = false;
    match byte(at) {
        // VEX: the opcodes are those behind 0F.
        0xc5 => (vector, at) = (true, at + 2),
        0xc4 if byte(at + 1) & 0x1f == 1 => (vector, at) = (true, at + 3),
        0x40..=0x4f => at += 1,
        _ => {}
    }
    if !vector && byte(at) == 0x0f {
        (vector, at) = (true, at + 1);
    }
    let number = match (vector, byte(at)) {
        (false, 0x88 | 0x89) => 0,
        (false, 0xc6) => 1,
        (false, 0xc7) => 4 - 2 * usize::from(short),
        // MOVUPS, MOVAPS, MOVNTPS, MOVDQA and MOVDQU, MOVNTI, MOVQ, MOVNTDQ.
        (true, 0x11 | 0x29 | 0x2b | 0x7f | 0xc3 | 0xd6 | 0xe7) => 0,
        _ => return None,
    };
    at += 1;
    let (mode, base) = (byte(at) >> 6, byte(at) & 7);
    at += 1;
    let mut base = (base, mode == 0 && base == 5);
    if base.0 == 4 && mode != 3 {
        base.1 = mode == 0 && byte(at) & 7 == 5;
        at += 1;
    }
    at += match mode {
        0 if base.1 => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        // The target is a register.
        _ => return None,
    };
    i64::try_from(at + number).ok()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn stores_have_lengths() {
        let stores: [&[u8]; 12] = [
            // mov [rax], rdx
            &[0x48, 0x89, 0x10],
            // mov [rax+8], edx
            &[0x89, 0x50, 0x08],
            // mov [r8+r9*8+0x800], rdx
            &[0x4b, 0x89, 0x94, 0xc8, 0x00, 0x08, 0x00, 0x00],
            // mov [rip+16], rdx
            &[0x48, 0x89, 0x15, 0x10, 0x00, 0x00, 0x00],
            // mov [rcx*1+16], edx
            &[0x89, 0x14, 0x0d, 0x10, 0x00, 0x00, 0x00],
            // mov qword [rax], 1
            &[0x48, 0xc7, 0x00, 0x01, 0x00, 0x00, 0x00],
            // mov word [rax], 1
            &[0x66, 0xc7, 0x00, 0x01, 0x00],
            // mov [rax], dl
            &[0x88, 0x10],
            // movnti [rsp], rax
            &[0x48, 0x0f, 0xc3, 0x04, 0x24],
            // movups [rdi+16], xmm0
            &[0x0f, 0x11, 0x47, 0x10],
            // movntdq [rdi], xmm1
            &[0x66, 0x0f, 0xe7, 0x0f],
            // vmovdqu [rdi], ymm0
            &[0xc5, 0xfe, 0x7f, 0x07],
        ];
        for store in stores {
            let mut code = [0x90; 16];
            code[..store.len()].copy_from_slice(store);
            // SAFETY: there are 16 bytes.
            let len = unsafe { store_len(code.as_ptr()) };
            assert_eq!(len, Some(store.len() as i64), "{store:02x?}");
        }
        // A load, a call, a MOV between registers.
        for other in [[0x48, 0x8b, 0x10], [0xff, 0x10, 0x90], [0x48, 0x89, 0xc2]] {
            let mut code = [0x90; 16];
            code[..3].copy_from_slice(&other);
            // SAFETY: there are 16 bytes.
            assert_eq!(unsafe { store_len(code.as_ptr()) }, None, "{other:02x?}");
        }
    }
}
