//! The C library's functions that take paths. Each calls the one behind it, with the path that is meant. Threads may be cancelled
//! in that one, so that nothing is to be dropped here.

// UNSAFETY: C's text, and calls of functions that the dynamic linker finds.
#![expect(unsafe_code)]
#![expect(
    unreachable_pub,
    reason = "C finds functions by their names, wherever they are"
)]

use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use libc::{DIR, FILE, dirent, mode_t, size_t, ssize_t};

use crate::next::Next;
use crate::translate::{FUNCTIONS, ROOT, translate};

/// The longest path that the kernel takes.
const LONGEST: usize = libc::PATH_MAX as usize;

/// The folder that has the files; empty if there is none.
fn root() -> &'static [u8] {
    static ROOT_FOLDER: OnceLock<Vec<u8>> = OnceLock::new();
    ROOT_FOLDER
        .get_or_init(|| env::var_os(ROOT).map_or_else(Vec::new, |root| root.as_bytes().to_vec()))
}

/// Returns `true` if a path is one of a PCI function's, and the folder has these in place of the system's.
fn functions(path: &[u8]) -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    path.starts_with(FUNCTIONS.as_bytes())
        && *THERE.get_or_init(|| {
            let there = [root(), FUNCTIONS.as_bytes()].concat();
            Path::new(OsStr::from_bytes(&there)).exists()
        })
}

/// Does something with the path that is meant.
///
/// # Safety
/// `path` is C's text or NULL.
unsafe fn with<R>(path: *const c_char, work: impl FnOnce(*const c_char) -> R) -> R {
    // SAFETY: the caller promises that `path` is C's text or NULL.
    if path.is_null() || unsafe { *path.cast::<u8>() } != b'/' {
        return work(path);
    }
    // SAFETY: the caller promises that `path` is C's text or NULL.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut room = [0; LONGEST];
    match translate(root(), functions(text), text, &mut room) {
        Some(there) => work(there.as_ptr().cast()),
        None => work(path),
    }
}

/// Says that the C library has no such function.
fn missing() {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

/// A function whose argument `$path` is a path. What is behind the arguments' types in brackets are those of a variadic
/// function, which come in the same registers.
macro_rules! interposed {
    ($($name:ident($($argument:ident: $type:ty),*) $([$($more:ident: $more_type:ty)?])? $path:ident -> $returns:ty, $failed:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type,)* $($($more: $more_type)?)?) -> $returns {
                static NEXT: Next = {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => Next::new(name),
                        Err(_) => panic!("a name has no zero"),
                    }
                };
                type Function = unsafe extern "C-unwind" fn($($type,)* $($($more_type)?)?) -> $returns;
                // SAFETY: the C library's function has this type; NULL is `None`.
                let next = unsafe { transmute::<*mut c_void, Option<Function>>(NEXT.address()) };
                let Some(next) = next else {
                    missing();
                    return $failed;
                };
                // SAFETY: the caller keeps the contract of the C library's function, and the path is text.
                unsafe { with($path, |$path| next($($argument,)* $($($more)?)?)) }
            }
        )*
    };
}

// The mode of the functions that open is variadic in C. On x86-64 and AArch64 under Linux such an argument comes in the
// register in which an ordinary one would; without it, the register has something, which the kernel does not look at.
interposed! {
    open(path: *const c_char, flags: c_int) [mode: c_uint] path -> c_int, -1;
    open64(path: *const c_char, flags: c_int) [mode: c_uint] path -> c_int, -1;
    openat(folder: c_int, path: *const c_char, flags: c_int) [mode: c_uint] path -> c_int, -1;
    openat64(folder: c_int, path: *const c_char, flags: c_int) [mode: c_uint] path -> c_int, -1;
    __open_2(path: *const c_char, flags: c_int) path -> c_int, -1;
    __open64_2(path: *const c_char, flags: c_int) path -> c_int, -1;
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) path -> c_int, -1;
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) path -> c_int, -1;
    fopen(path: *const c_char, mode: *const c_char) path -> *mut FILE, std::ptr::null_mut();
    fopen64(path: *const c_char, mode: *const c_char) path -> *mut FILE, std::ptr::null_mut();
    opendir(path: *const c_char) path -> *mut DIR, std::ptr::null_mut();
    scandir(path: *const c_char, list: *mut *mut *mut dirent, filter: *const c_void, compare: *const c_void)
        path -> c_int, -1;
    scandir64(path: *const c_char, list: *mut *mut *mut dirent, filter: *const c_void, compare: *const c_void)
        path -> c_int, -1;
    stat(path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    stat64(path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    lstat(path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    lstat64(path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    fstatat(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) path -> c_int, -1;
    fstatat64(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) path -> c_int, -1;
    __xstat(version: c_int, path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    __xstat64(version: c_int, path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    __lxstat(version: c_int, path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    __lxstat64(version: c_int, path: *const c_char, to: *mut libc::stat) path -> c_int, -1;
    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) path -> c_int, -1;
    access(path: *const c_char, mode: c_int) path -> c_int, -1;
    eaccess(path: *const c_char, mode: c_int) path -> c_int, -1;
    euidaccess(path: *const c_char, mode: c_int) path -> c_int, -1;
    faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) path -> c_int, -1;
    readlink(path: *const c_char, to: *mut c_char, size: size_t) path -> ssize_t, -1;
    readlinkat(folder: c_int, path: *const c_char, to: *mut c_char, size: size_t) path -> ssize_t, -1;
    realpath(path: *const c_char, to: *mut c_char) path -> *mut c_char, std::ptr::null_mut();
    canonicalize_file_name(path: *const c_char) path -> *mut c_char, std::ptr::null_mut();
    __readlink_chk(path: *const c_char, to: *mut c_char, size: size_t, room: size_t) path -> ssize_t, -1;
    __readlinkat_chk(folder: c_int, path: *const c_char, to: *mut c_char, size: size_t, room: size_t) path -> ssize_t, -1;
    __realpath_chk(path: *const c_char, to: *mut c_char, room: size_t) path -> *mut c_char, std::ptr::null_mut();
    creat(path: *const c_char, mode: mode_t) path -> c_int, -1;
}
