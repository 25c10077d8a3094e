//! The switch that joins the processes of a machine: started by the first one that wants it, ended after the last one.

// UNSAFETY: lets a descriptor go over to the program that is run.
#![expect(unsafe_code)]

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use connectx_model::link::stream::{Connection, Wish};
use connectx_model::link::vswitch::{VirtualSwitch, lock_folder};

/// What the switch says when it is there.
const READY: &str = "ready";
/// What goes to standard error, as for the library.
const LOG: &str = "BAREVERBS_LOG";

/// Sees to it that there is a switch at `path`, for as long as this process runs or the program that takes its place, or
/// one that these have started. `log` is what the switch shall say on standard error.
pub fn join(path: &Path, log: Option<&str>) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    // Nobody else starts one at the same time, and it does not end.
    let _lock = lock_folder(path).map_err(fail)?;
    let none = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    let hold = match Connection::open(path, Wish::Hold) {
        Err(error) if none.contains(&error.kind()) => {
            start(path, log)?;
            Connection::open(path, Wish::Hold)
        }
        result => result,
    };
    let descriptor = hold
        .map_err(|error| error.to_string())?
        .into_stream()
        .into_raw_fd();
    // It stays open in the program, which knows nothing of it.
    // SAFETY: the descriptor is open, and no other part of the process has it; its flags are set, no memory is touched.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } < 0 {
        return Err(fail(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Starts a switch, in a process of its own.
fn start(path: &Path, log: Option<&str>) -> Result<(), String> {
    let runner = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    let mut command = Command::new(runner);
    command
        .arg("--serve-switch")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Who reads the program's standard error until its end shall not wait for the switch.
        .stderr(Stdio::null())
        // Control-C is for the programs.
        .process_group(0)
        .current_dir("/");
    if log.is_some() || std::env::var_os(LOG).is_some() {
        command.stderr(Stdio::inherit());
    }
    if let Some(log) = log {
        command.env(LOG, log);
    }
    let fail = |error: std::io::Error| format!("the switch {}: {error}", path.display());
    let mut switch = command.spawn().map_err(fail)?;
    let mut said = String::new();
    if let Some(output) = switch.stdout.take() {
        BufReader::new(output).read_line(&mut said).map_err(fail)?;
    }
    match said.trim_end() {
        READY => Ok(()),
        why => Err(format!("the switch {}: {why}", path.display())),
    }
}

/// Is the switch, until the last process has gone.
pub fn serve(path: &Path) -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or(LOG, "error")).init();
    let switch = match VirtualSwitch::bind(path) {
        Ok(switch) => {
            // Nobody may be there to read it: then nobody connects either.
            let _ = writeln!(std::io::stdout(), "{READY}");
            switch
        }
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match switch.serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the switch {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
