//! The process that waits for this one's end.

// UNSAFETY: a process, its descriptors and its signals.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::fs::{DirEntry, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::time::Duration;

use bareverbs_cm::engine::LastMessage;

use super::{End, Messages, wait};
use crate::error::Error;
use crate::patience::when_free;

/// The name of the process, as `ps` prints it.
const NAME: &std::ffi::CStr = c"hang-up";
/// The time for which the kernel may count a thread that was joined.
const JOINED: Duration = Duration::from_millis(100);
/// Signals have numbers up to this one.
const SIGNALS: c_int = 64;

/// Makes memory for so many messages, and a process that calls `hang_up` with what is there when this process has ended or has
/// dropped it. The process is a copy of this one, which has a single thread therefore; it is no child of this one's.
///
/// # Errors
///
/// [`Error::Threads`], [`Error::LastMessages`].
pub(crate) fn start(
    end: &End,
    count: usize,
    hang_up: impl FnOnce(&[LastMessage]) -> Result<(), Error>,
) -> Result<Messages, Error> {
    let may_end = |error: &Error| matches!(error, Error::Threads(_));
    when_free(JOINED, may_end, || {
        let threads = std::fs::read_dir("/proc/self/task").map_err(Error::LastMessages)?;
        match threads.count() {
            1 => Ok(()),
            threads => Err(Error::Threads(threads)),
        }
    })?;
    end.wait();
    let messages = Messages::new(count).map_err(Error::LastMessages)?;
    // SAFETY: there is one thread, so that a copy of it finds no lock that another one has.
    match unsafe { libc::fork() } {
        0 => end_after(|| leave(end, &messages, hang_up)),
        child @ 1.. => {
            let started = until_ended(child);
            started.map(|()| messages).map_err(Error::LastMessages)
        }
        _ => Err(Error::LastMessages(io::Error::last_os_error())),
    }
}

/// Waits for a child, which has to end well.
fn until_ended(child: c_int) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes the status.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } >= 0 {
            return match status {
                0 => Ok(()),
                _ => Err(io::Error::other("the process that hangs up did not start")),
            };
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Children of a process that ignores SIGCHLD, which are not waited for, leave nothing.
            Some(libc::ECHILD) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Ends this process, whatever the work does: it does not return into the program of which it is a copy.
fn end_after(work: impl FnOnce() -> io::Result<()>) -> ! {
    let done = catch_unwind(AssertUnwindSafe(work));
    if let Ok(Err(error)) = &done {
        eprintln!("a process that hangs up for another one: {error}");
    }
    // SAFETY: nothing of the program's runs at the end: no function that it has registered, no buffer that it has filled.
    unsafe { libc::_exit(if matches!(done, Ok(Ok(()))) { 0 } else { 1 }) }
}

/// The first process: lets go of all that it has of the program, and leaves another one behind that has no parent.
fn leave(
    end: &End,
    messages: &Messages,
    hang_up: impl FnOnce(&[LastMessage]) -> Result<(), Error>,
) -> io::Result<()> {
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    let nothing = nothing.into_raw_fd();
    let is_heard = log::log_enabled!(log::Level::Debug);
    // Its records may go to a file of the program's, whose descriptor is another file's soon.
    log::set_max_level(log::LevelFilter::Off);
    // SAFETY: no value of this process whose descriptor ends here is used again, as none of the program's runs. The file's is
    // standard input from here on; before, `nothing` may be, where the program has none.
    unsafe {
        libc::dup2(nothing, 1);
        if !is_heard {
            libc::dup2(nothing, 2);
        }
        libc::dup2(messages.file().as_raw_fd(), 0);
        close_others();
        libc::setsid();
        for signal in 1..=SIGNALS {
            // Some cannot be changed.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), null_mut());
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
    }
    // Without the name, a process that begins soon may be in the way.
    let held = end.hold_when_free();
    if let Err(error) = &held {
        eprintln!("a process that hangs up for another one has no name: {error}");
    }
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        0 => end_after(|| {
            // SAFETY: the descriptor is that of the file, and nothing else has it.
            let mut file = unsafe { File::from_raw_fd(0) };
            let messages = wait(&mut file)?;
            if messages.iter().all(LastMessage::is_none) {
                return Ok(());
            }
            let done = hang_up(&messages).map_err(io::Error::other);
            drop(held);
            done
        }),
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes all descriptors but those of input and output.
///
/// # Safety
///
/// Nothing uses them again.
unsafe fn close_others() {
    // SAFETY: the caller's promise.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) } == 0 {
        return;
    }
    // Kernels before 5.9.
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |entry: io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let open: Vec<c_int> = open.filter_map(number).collect();
    for descriptor in open.into_iter().filter(|number| *number > 2) {
        // SAFETY: the caller's promise. That of the folder is closed already.
        unsafe { libc::close(descriptor) };
    }
}
