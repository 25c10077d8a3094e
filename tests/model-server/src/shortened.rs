//! Files that get shorter under their mappings. An access behind the end of a file raises SIGBUS, which would end the process:
//! all clients would pay for what one of them does. As compositors do it for the memory of their clients (`wl_shm`), the handler
//! puts other memory in the place of the mapping, so that the access ends, and its caller is told. That costs accesses that
//! succeed next to nothing, and there is no time between a check and an access.

// UNSAFETY: replaces a mapping in the handler of the signal that says that it has no memory behind it.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use memmap2::MmapRaw;
use vmm_sys_util::signal::register_signal_handler;

/// A file is mapped in this region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    start: usize,
    len: usize,
}

impl Region {
    pub(crate) const NONE: Self = Self { start: 0, len: 0 };

    pub(crate) fn of(map: &MmapRaw) -> Self {
        Self {
            start: map.as_mut_ptr().expose_provenance(),
            len: map.len(),
        }
    }
}

/// The region that this thread accesses at the moment, for the handler.
struct Access {
    start: AtomicUsize,
    len: AtomicUsize,
    missed: AtomicBool,
}

thread_local! {
    // Without a destructor or anything to initialise, so that the handler may look at it.
    static ACCESS: Access = const {
        Access {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            missed: AtomicBool::new(false),
        }
    };
}

/// Has [`access`] take the signal over from now on.
///
/// # Errors
/// The system refuses it.
pub(crate) fn prepare() -> io::Result<()> {
    static PREPARED: OnceLock<Result<(), i32>> = OnceLock::new();
    let register = || register_signal_handler(libc::SIGBUS, on_bus_error);
    PREPARED
        .get_or_init(|| register().map_err(|error| error.errno()))
        .map_err(io::Error::from_raw_os_error)
}

/// Does something that touches this region and no other. Whether all of it was there; if not, memory that is of no use to anybody
/// is in its place from now on. To be called after [`prepare`].
pub(crate) fn access(region: Region, touch: impl FnOnce()) -> bool {
    ACCESS.with(|access| {
        access.start.store(region.start, Ordering::Relaxed);
        access.len.store(region.len, Ordering::Relaxed);
        // The handler runs in this thread.
        compiler_fence(Ordering::SeqCst);
        touch();
        compiler_fence(Ordering::SeqCst);
        access.len.store(0, Ordering::Relaxed);
        let missed = access.missed.load(Ordering::Relaxed);
        if missed {
            access.missed.store(false, Ordering::Relaxed);
        }
        !missed
    })
}

extern "C" fn on_bus_error(_: c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands in what it knows of the signal, and SIGBUS has an address.
    let at = unsafe { (*about).si_addr() }.addr();
    let replaced = ACCESS.with(|access| {
        let start = access.start.load(Ordering::Relaxed);
        let len = access.len.load(Ordering::Relaxed);
        if at.wrapping_sub(start) >= len {
            return false;
        }
        access.missed.store(true, Ordering::Relaxed);
        // SAFETY: the region is a mapping of this process's that is in use at the moment and whose content may change at any
        // time, and stays one of the same length; mmap may be called in a handler.
        let map = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        map != libc::MAP_FAILED
    });
    if !replaced {
        // Another fault, which is there again when this returns, and ends the process as if there were no handler.
        // SAFETY: the default action needs no memory.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}
