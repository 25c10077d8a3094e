//! The process that hangs up for another one when that is gone. The library starts the runner for it.

// UNSAFETY: descriptors, a process, and a function of the library.
#![expect(unsafe_code)]

use std::ffi::{CString, OsString, c_int};
use std::fs::{DirEntry, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::transmute;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::LIBRARY;

/// The argument with which the library starts the runner.
pub const ARGUMENT: &str = "--hang-up";
/// The time that is waited for a name.
const PATIENCE: Duration = Duration::from_millis(100);

/// Holds the names of its further arguments, leaves a process behind that calls the library's function, and ends. The process
/// is no child of the program's, has nothing of it open but standard input, and no signal of its terminal reaches it.
pub fn serve() -> ExitCode {
    // SAFETY: nothing of this process is open yet.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) } != 0 {
        close_each();
    }
    let names = std::env::args_os().skip(2);
    // Without a name, a process that begins soon may be in the way.
    let _held: Vec<_> = names.flat_map(hold).collect();
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        0 => {}
        1.. => return ExitCode::SUCCESS,
        _ => return ExitCode::FAILURE,
    }
    match hang_up() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bareverbs-run {ARGUMENT}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Has a name. Another process has it for a moment when it looks whether it is free.
fn hold(name: OsString) -> io::Result<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(name.as_bytes())?;
    let end = Instant::now() + PATIENCE;
    loop {
        match UnixDatagram::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            held => return held,
        }
    }
}

/// Closes what is open beside input and output, on kernels before 5.9.
fn close_each() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |entry: io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let open: Vec<c_int> = open.filter_map(number).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // SAFETY: nothing of this process is open yet. That of the folder is closed already.
        unsafe { libc::close(descriptor) };
    }
}

fn hang_up() -> Result<(), String> {
    let fail = |error: io::Error| error.to_string();
    let nothing = OpenOptions::new().write(true).open("/dev/null");
    let nothing = nothing.map_err(fail)?;
    // Who reads the program's output until its end shall not wait for this process.
    let is_heard = std::env::var_os("BAREVERBS_LOG").is_some();
    let library = std::env::current_exe()
        .map_err(fail)?
        .with_file_name(LIBRARY);
    let path = CString::new(library.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the descriptors are this process's; the library of this build has the function, which takes and returns this.
    unsafe {
        libc::setsid();
        libc::dup2(nothing.as_raw_fd(), 1);
        if !is_heard {
            libc::dup2(nothing.as_raw_fd(), 2);
        }
        let opened = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        let function = libc::dlsym(opened, c"bareverbs_hang_up".as_ptr());
        if opened.is_null() || function.is_null() {
            return Err(format!("{} cannot hang up", library.display()));
        }
        match transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(function)() {
            0 => Ok(()),
            _ => Err(fail(io::Error::last_os_error())),
        }
    }
}
