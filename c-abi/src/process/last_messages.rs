//! Work that is left when the process is gone: the last message of each connection, in memory that outlives the process, and a
//! process beside it that sends them ([`hang_up`](crate::process::hang_up)). The kernel does that for RDMA programs on Linux.

// UNSAFETY: the start of a process.
#![expect(unsafe_code)]

use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bareverbs_node::cm::engine::LastMessage;

use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::CONNECTIONS;
use crate::process::settings;

/// The program beside the library that becomes the other process, and its argument.
const RUNNER: &str = "bareverbs-run";
const ARGUMENT: &std::ffi::CStr = c"--hang-up";
/// The stacks on which the two new processes run until one is another program, half of it each.
const STACK: usize = 128 << 10;
/// The status of a new process that did not become the program.
const FAILED: c_int = 127;

/// The messages of one device.
pub(crate) type Messages = &'static mut [LastMessage];

/// The messages of the devices that are not up yet, once there was one.
static LEFT: Mutex<Option<Vec<Option<Messages>>>> = Mutex::new(None);

/// The messages of a device, which are made with those of all others. None if there is no process to send them, or another call
/// has them.
pub(crate) fn of_device(
    index: usize,
    make: impl FnOnce() -> Result<Vec<Option<Messages>>>,
) -> Option<Messages> {
    let mut left = lock(&LEFT);
    let left = left.get_or_insert_with(|| {
        make().unwrap_or_else(|errno| {
            let why = io::Error::from_raw_os_error(errno.0);
            log::debug!("no process hangs up when this one is killed: {why}");
            Vec::new()
        })
    });
    left.get_mut(index)?.take()
}

/// Makes the memory for so many devices, and the process that waits for this one's end and holds these names. `first_unit` is the
/// number of the first model.
pub(crate) fn begin(
    devices: usize,
    first_unit: u8,
    names: &[String],
) -> Result<Vec<Option<Messages>>> {
    let runner = runner().ok_or(Errno(libc::ENOENT))?;
    let messages = bareverbs_node::last_messages::Messages::new(devices * CONNECTIONS)?;
    start(messages.file(), &runner, first_unit, names)?;
    Ok(messages.leak().chunks_mut(CONNECTIONS).map(Some).collect())
}

/// The runner beside the file that has this function.
fn runner() -> Option<PathBuf> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    let here = runner as *const c_void;
    // SAFETY: the structure is written if there is such a file, and its name is text.
    let name = unsafe {
        if libc::dladdr(here, about.as_mut_ptr()) == 0 || about.assume_init().dli_fname.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(about.assume_init().dli_fname)
    };
    let library = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).canonicalize();
    let runner = library.ok()?.with_file_name(RUNNER);
    runner.exists().then_some(runner)
}

/// A program that a new process becomes, with a file as its standard input.
struct Program<'a> {
    input: c_int,
    path: &'a CString,
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    /// The end of the stack on which the process begins.
    stack: *mut c_void,
}

/// Starts the process that waits. It is no child of this one when this returns: the runner leaves it to the system.
fn start(file: &File, runner: &Path, first_unit: u8, names: &[String]) -> Result<()> {
    let text = |text: &[u8]| CString::new(text).map_err(|_| Errno::EINVAL);
    let path = text(runner.as_os_str().as_bytes())?;
    // The libraries that the program is to be run with are not for the runner, and its capture stays as it is.
    let others = ["LD_PRELOAD", settings::PCAP, settings::UNIT];
    let kept = std::env::vars_os().filter(|(name, _)| others.iter().all(|other| name != other));
    let unit = (settings::UNIT.into(), first_unit.to_string().into());
    let variables = kept
        .chain([unit])
        .map(|(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            text(name.as_bytes())
        });
    let variables = variables.collect::<Result<Vec<_>>>()?;
    let names = names.iter().map(|name| text(name.as_bytes()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let mut arguments = vec![path.as_ptr(), ARGUMENT.as_ptr()];
    arguments.extend(names.iter().map(|name| name.as_ptr()));
    arguments.push(std::ptr::null());
    let pointers = variables.iter().map(|variable| variable.as_ptr());
    let environment: Vec<_> = pointers.chain([std::ptr::null()]).collect();
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK / size_of::<u128>()];
    let mut program = Program {
        input: file.as_raw_fd(),
        path: &path,
        arguments: &arguments,
        environment: &environment,
        stack: stack[..STACK / size_of::<u128>() / 2]
            .as_mut_ptr_range()
            .end
            .cast(),
    };
    let mut status = 0;
    // SAFETY: the new process has the upper half of the stack, and this thread stands still until that process has ended, so that
    // all that it is lent stays. The process runs no other program, which would have it send SIGCHLD (`execve(2)`): at its end it
    // sends no signal, and no wait finds it that does not ask for such processes (`__WALL`), as this one does.
    unsafe {
        let process = libc::clone(
            start_program,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK,
            (&raw mut program).cast(),
        );
        if process < 0 {
            return Err(Errno::last());
        }
        while libc::waitpid(process, &mut status, libc::__WALL) < 0 {
            if Errno::last() != Errno(libc::EINTR) {
                return Err(Errno::last());
            }
        }
    }
    match status {
        0 => Ok(()),
        _ => Err(Errno(libc::ENOEXEC)),
    }
}

/// The new process, which shares the memory of the one that waits for it: it starts another one that becomes the program, and ends
/// when that has ended, with 0 if that ended well.
extern "C" fn start_program(program: *mut c_void) -> c_int {
    // The kernel's `struct sigaction` for `SIG_DFL`: four words, all zero.
    let default = [0_usize; 4];
    let mut status: c_int = 0;
    // SAFETY: `start` lends the program. The other process has the lower half of the stack, and this one stands still until that
    // one runs its program. The actions of signals are this process's own (no `CLONE_SIGHAND`); with SIGCHLD ignored there would
    // be nothing to wait for. Only calls of the kernel are made, with `errno` of the thread that stands still.
    unsafe {
        let none = std::ptr::null::<c_void>();
        let size = size_of::<u64>();
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGCHLD,
            &raw const default,
            none,
            size,
        );
        let process = libc::clone(
            become_program,
            (*program.cast::<Program<'_>>()).stack,
            libc::CLONE_VM | libc::CLONE_VFORK,
            program,
        );
        let is_done = process > 0
            && loop {
                let wait = libc::SYS_wait4;
                let found = libc::syscall(wait, process, &raw mut status, libc::__WALL, none);
                if found >= 0 || *libc::__errno_location() != libc::EINTR {
                    break found == i64::from(process);
                }
            };
        let code: c_int = if is_done && status == 0 { 0 } else { FAILED };
        libc::syscall(libc::SYS_exit_group, code);
    }
    FAILED
}

/// The process that becomes the program. The one that started it shares its memory, and waits.
extern "C" fn become_program(program: *mut c_void) -> c_int {
    // SAFETY: `start` lends the program, and calls of the kernel are all that is done: `dup2` may be that of the sockets' library.
    unsafe {
        let program = &*program.cast::<Program<'_>>();
        if libc::syscall(libc::SYS_dup3, program.input, 0, 0) == 0 {
            let (arguments, environment) = (program.arguments, program.environment);
            libc::syscall(
                libc::SYS_execve,
                program.path.as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
            );
        }
        libc::syscall(libc::SYS_exit_group, FAILED);
    }
    FAILED
}
