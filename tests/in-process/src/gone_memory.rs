//! Copies between the program's memory and the device that survive memory which is gone.
//!
//! A card's driver pins the pages that a program registers. The model reaches them by the program's own addresses, so that
//! a program that unmaps them, takes the right to write to them away, or truncates the file behind them, would be killed
//! by the next access of a peer. After [`survive_gone_memory`], such an access is an IOMMU's fault in place of that.
//!
//! The copies are written in assembly, so that the handler of the signal knows them by the program counter alone, and
//! sends them on to their failing end: as exception tables do it for an operating system's copies of a program's memory.
//! The handler needs neither thread-local memory nor locks.

// UNSAFETY: this is the machine under the driver: it copies for the device, and handles the signals of its own copies.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// [`survive_gone_memory`] was called.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Returns `true` if copies of this module are to be used.
#[inline]
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Lets the models of this process survive memory of the program that is gone: from now on, an access of a device to it
/// fails as one does that an IOMMU refuses.
///
/// This takes the signals SIGSEGV and SIGBUS of the process. A handler that was there before gets all those that are not
/// of such an access; one that the program sets later takes them from this one. A thread that executes a device has both
/// unblocked when it does so for the first time; if it blocks them later, the kernel ends the process at such an access.
/// It does nothing on machines other than x86-64 and aarch64 with Linux.
pub fn survive_gone_memory() {
    if signals::take() {
        ACTIVE.store(true, Ordering::Relaxed);
    }
}

/// Copies `length` bytes, forwards, each once.
///
/// Returns `false` if there is no memory at one of the two ends, or it must not be accessed; some bytes may be copied then.
///
/// # Safety
/// Each end is memory that exists during the call and may be accessed, or is not mapped, or not for this access. The two
/// ends do not overlap. If one is missing, [`survive_gone_memory`] was called.
#[inline]
pub(crate) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, length: usize) -> bool {
    signals::unblock();
    // SAFETY: the caller's promise; the signal's handler is there if an end is missing.
    unsafe { machine::bareverbs_model_copy(to.as_ptr(), from.as_ptr(), length) == 0 }
}

/// Stores a dword after everything that was written before.
///
/// Returns `false` if there is no memory, or it must not be written to.
///
/// # Safety
/// As that of [`copy`]; the place is aligned.
#[inline]
pub(crate) unsafe fn store_last(to: NonNull<u32>, dword: u32) -> bool {
    // SAFETY: the caller's promise; the signal's handler is there if the memory is missing.
    unsafe { machine::bareverbs_model_store(to.as_ptr(), dword) == 0 }
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod machine {
    use std::arch::global_asm;

    // Between `bareverbs_model_copy` and `bareverbs_model_gone`, nothing changes the stack, so that the code at the latter
    // returns from either function.
    #[cfg(target_arch = "x86_64")]
    global_asm!(
        ".pushsection .text.bareverbs_model_copy, \"ax\", @progbits",
        ".hidden bareverbs_model_copy",
        ".globl bareverbs_model_copy",
        ".type bareverbs_model_copy, @function",
        "bareverbs_model_copy:",
        ".cfi_startproc",
        "mov rcx, rdx",
        "shr rcx, 4",
        "jz 3f",
        "2:",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "add rsi, 16",
        "add rdi, 16",
        "dec rcx",
        "jnz 2b",
        "3:",
        "test dl, 15",
        "jz 7f",
        "test dl, 8",
        "jz 4f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "4:",
        "test dl, 4",
        "jz 5f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "add rsi, 4",
        "add rdi, 4",
        "5:",
        "test dl, 2",
        "jz 6f",
        "mov ax, [rsi]",
        "mov [rdi], ax",
        "add rsi, 2",
        "add rdi, 2",
        "6:",
        "test dl, 1",
        "jz 7f",
        "mov al, [rsi]",
        "mov [rdi], al",
        "7:",
        "xor eax, eax",
        "ret",
        ".hidden bareverbs_model_store",
        ".globl bareverbs_model_store",
        "bareverbs_model_store:",
        "mov [rdi], esi",
        "xor eax, eax",
        "ret",
        ".hidden bareverbs_model_gone",
        ".globl bareverbs_model_gone",
        "bareverbs_model_gone:",
        "mov eax, 1",
        "ret",
        ".cfi_endproc",
        ".size bareverbs_model_copy, . - bareverbs_model_copy",
        ".popsection",
    );

    #[cfg(target_arch = "aarch64")]
    global_asm!(
        ".pushsection .text.bareverbs_model_copy, \"ax\", @progbits",
        ".hidden bareverbs_model_copy",
        ".globl bareverbs_model_copy",
        ".type bareverbs_model_copy, @function",
        "bareverbs_model_copy:",
        ".cfi_startproc",
        "lsr x3, x2, #4",
        "cbz x3, 3f",
        "2:",
        "ldr q0, [x1], #16",
        "str q0, [x0], #16",
        "subs x3, x3, #1",
        "b.ne 2b",
        "3:",
        "tbz w2, #3, 4f",
        "ldr x3, [x1], #8",
        "str x3, [x0], #8",
        "4:",
        "tbz w2, #2, 5f",
        "ldr w3, [x1], #4",
        "str w3, [x0], #4",
        "5:",
        "tbz w2, #1, 6f",
        "ldrh w3, [x1], #2",
        "strh w3, [x0], #2",
        "6:",
        "tbz w2, #0, 7f",
        "ldrb w3, [x1]",
        "strb w3, [x0]",
        "7:",
        "mov w0, #0",
        "ret",
        ".hidden bareverbs_model_store",
        ".globl bareverbs_model_store",
        "bareverbs_model_store:",
        "stlr w1, [x0]",
        "mov w0, #0",
        "ret",
        ".hidden bareverbs_model_gone",
        ".globl bareverbs_model_gone",
        "bareverbs_model_gone:",
        "mov w0, #1",
        "ret",
        ".cfi_endproc",
        ".size bareverbs_model_copy, . - bareverbs_model_copy",
        ".popsection",
    );

    unsafe extern "C" {
        pub(super) fn bareverbs_model_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
        pub(super) fn bareverbs_model_store(to: *mut u32, dword: u32) -> u32;
        pub(super) fn bareverbs_model_gone() -> u32;
    }
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod signals {
    use super::machine::{bareverbs_model_copy, bareverbs_model_gone};
    use libc::{c_int, c_void, sigaction, siginfo_t, ucontext_t};
    use std::cell::Cell;
    use std::mem::{MaybeUninit, transmute};
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
    /// The handlers that the process had for the two signals before.
    static BEFORE: [OnceLock<sigaction>; 2] = [const { OnceLock::new() }; 2];
    /// Handlers of before that were for one signal (SA_RESETHAND), and had it.
    static SPENT: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    /// The code of a SIGBUS that no access of this thread has caused: memory has failed somewhere (BUS_MCEERR_AO of
    /// sigaction(2)).
    const ELSEWHERE: c_int = 5;

    /// Lets this thread have the two signals, once.
    #[inline]
    pub(super) fn unblock() {
        thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
        if !DONE.replace(true) {
            let mut set = MaybeUninit::uninit();
            // SAFETY: the set is written before it is read.
            unsafe {
                libc::sigemptyset(set.as_mut_ptr());
                for signal in SIGNALS {
                    libc::sigaddset(set.as_mut_ptr(), signal);
                }
                libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
            }
        }
    }

    /// Sets the handlers, once. Returns `false` if the kernel does not take them.
    pub(super) fn take() -> bool {
        static TAKEN: OnceLock<bool> = OnceLock::new();
        *TAKEN.get_or_init(|| {
            SIGNALS.iter().zip(&BEFORE).all(|(&signal, before)| {
                let mut found = MaybeUninit::<sigaction>::zeroed();
                // SAFETY: the first call asks, and writes the structure if it succeeds, for which zero is a value, too; the
                // handler is for the life of the process, and of the kind that the flags say.
                unsafe {
                    libc::sigaction(signal, ptr::null(), found.as_mut_ptr());
                    let found = found.assume_init();
                    let mut action = found;
                    action.sa_sigaction = on_fault as *const () as usize;
                    action.sa_flags &= libc::SA_NODEFER | libc::SA_RESTART;
                    action.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
                    before.set(found).is_ok()
                        && libc::sigaction(signal, &action, ptr::null_mut()) == 0
                }
            })
        })
    }

    fn program_counter(context: &mut ucontext_t) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
        #[cfg(target_arch = "aarch64")]
        return context.uc_mcontext.pc;
    }

    fn go_on_at(context: &mut ucontext_t, address: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
        }
        #[cfg(target_arch = "aarch64")]
        {
            context.uc_mcontext.pc = address;
        }
    }

    /// Lets a copy fail that the signal is of; any other signal goes where it went before.
    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let start = bareverbs_model_copy as *const () as u64;
        let gone = bareverbs_model_gone as *const () as u64;
        // SAFETY: both are the kernel's, for the time of the handler.
        let (code, of_thread) = unsafe { ((*info).si_code, &mut *context.cast::<ucontext_t>()) };
        // It was sent, or is of another access: this thread's code is not its cause.
        let sent = code <= 0;
        let not_of_here = sent || signal == libc::SIGBUS && code == ELSEWHERE;
        if !not_of_here && (start..gone).contains(&program_counter(of_thread)) {
            go_on_at(of_thread, gone);
            return;
        }
        let index = usize::from(signal == SIGNALS[1]);
        let (handler, flags) = BEFORE[index]
            .get()
            .map_or((libc::SIG_DFL, 0), |it| (it.sa_sigaction, it.sa_flags));
        let once = flags & libc::SA_RESETHAND != 0;
        match handler {
            libc::SIG_IGN if sent => {}
            libc::SIG_DFL | libc::SIG_IGN => end(signal, not_of_here),
            _ if once && SPENT[index].swap(true, Ordering::Relaxed) => end(signal, not_of_here),
            handler => {
                let handler = handler as *const ();
                // SAFETY: the program set this function as one that takes all three arguments, or only the first one, which
                // the calling conventions of both machines permit to be called with more.
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    unsafe { transmute(handler) };
                handler(signal, info, context);
            }
        }
    }

    /// Lets the kernel end the process: when the access is made again after this, or by the signal, sent again.
    fn end(signal: c_int, again: bool) {
        // SAFETY: of numbers and a pointer, of which zero is the default action; a handler may call both functions.
        unsafe {
            let default: sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, &default, ptr::null_mut());
            if again {
                libc::raise(signal);
            }
        }
    }
}

/// Copies that fail cannot be told from others here.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod signals {
    pub(super) fn take() -> bool {
        false
    }

    pub(super) fn unblock() {}
}

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod machine {
    use std::sync::atomic::{AtomicU32, Ordering};

    /// # Safety
    /// That of `ptr::copy_nonoverlapping`.
    pub(super) unsafe fn bareverbs_model_copy(to: *mut u8, from: *const u8, length: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
        0
    }

    /// # Safety
    /// The place is memory that may be written to, and aligned.
    pub(super) unsafe fn bareverbs_model_store(to: *mut u32, dword: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(to) }.store(dword, Ordering::Release);
        0
    }
}

#[cfg(all(
    test,
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod tests {
    use super::*;
    use std::ptr;

    const PAGE: usize = 65536;

    #[test]
    fn every_length_is_copied_once() {
        let from: Vec<u8> = (1..=96).collect();
        for (start, length) in (0..16).flat_map(|start| (0..=80).map(move |length| (start, length)))
        {
            let mut to = [0_u8; 100];
            let part = &from[start..start + length];
            // SAFETY: both are there, and apart.
            let done = unsafe {
                copy(
                    NonNull::from(part).cast(),
                    NonNull::from(&mut to[3..]).cast(),
                    length,
                )
            };
            assert!(done);
            assert_eq!(&to[3..3 + length], part);
            assert!(
                to[..3]
                    .iter()
                    .chain(&to[3 + length..])
                    .all(|&byte| byte == 0)
            );
        }
    }

    #[test]
    fn what_is_gone_is_said() {
        survive_gone_memory();
        assert!(is_active());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, anywhere, of which the second part is closed.
        let pages = unsafe {
            let pages = libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(pages.byte_add(PAGE), PAGE, libc::PROT_NONE),
                0
            );
            NonNull::new(pages.cast::<u8>()).unwrap()
        };
        let mut here = [7_u8; 64];
        let here = NonNull::from(&mut here).cast::<u8>();
        for there in 0..=64 {
            // SAFETY: inside the two parts.
            let at = unsafe { pages.add(PAGE - there) };
            // SAFETY: the one end is there, the other one ends behind `there` bytes; the handlers are set.
            let (written, read) = unsafe { (copy(here, at, 64), copy(at, here, 64)) };
            assert_eq!((written, read), (there == 64, there == 64), "{there}");
            // SAFETY: this part is open.
            let found = unsafe { std::slice::from_raw_parts(at.as_ptr(), there) };
            // A step that meets the end writes nothing, or the part of it that is there.
            assert!(found[..there / 16 * 16].iter().all(|&byte| byte == 7));
        }
        // SAFETY: the two parts; the dwords are aligned.
        unsafe {
            assert!(store_last(pages.cast(), 0x0102_0304));
            assert_eq!(pages.cast::<u32>().read(), 0x0102_0304);
            assert!(!store_last(pages.add(PAGE).cast(), 1));
            assert_eq!(libc::munmap(pages.as_ptr().cast(), 2 * PAGE), 0);
        }
    }
}
