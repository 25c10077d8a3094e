//! The switch that joins the processes of a machine: started by the first one that wants it, ended after the last one.

// UNSAFETY: lets a descriptor go over to the program that is run; sets an option of a socket.
#![expect(unsafe_code)]

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use connectx_model::link::datagram::Address;
use connectx_model::link::stale::lock_folder;
use connectx_model::link::stream::{Connection, Wish};
use connectx_model::link::vswitch::VirtualSwitch;

/// The line that the switch prints when it is there.
const READY: &str = "ready";
/// The filter of the log on standard error, as for the library.
const LOG: &str = "BAREVERBS_LOG";
/// The bytes of frames from an uplink that the kernel shall hold, if the system allows that much.
const HELD: libc::c_int = 4 << 20;

/// Sees to it that there is a switch at `path`, for as long as this process runs or the program that takes its place, or
/// one that these have started. If it is not there yet it gets these uplinks. `log` is what the switch shall say on standard error.
///
/// # Errors
/// What is wrong.
pub fn join(path: &Path, uplinks: &[Address], log: Option<&str>) -> Result<(), String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    // No other process starts one at the same time, and it does not end.
    let _lock = lock_folder(path).map_err(fail)?;
    let none = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    let hold = match Connection::open(path, Wish::Hold) {
        Err(error) if none.contains(&error.kind()) => {
            start(path, uplinks, log)?;
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
        return Err(fail(io::Error::last_os_error()));
    }
    Ok(())
}

/// Starts a switch, in a process of its own.
fn start(path: &Path, uplinks: &[Address], log: Option<&str>) -> Result<(), String> {
    let runner = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    let mut command = Command::new(runner);
    command
        .arg("--serve-switch")
        .arg(path)
        .args(
            uplinks
                .iter()
                .flat_map(|uplink| ["--uplink".into(), uplink.to_string()]),
        )
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
    let fail = |error: io::Error| format!("the switch {}: {error}", path.display());
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

fn bind(path: &Path, uplinks: &[Address]) -> io::Result<VirtualSwitch> {
    let mut switch = VirtualSwitch::bind(path)?;
    for uplink in uplinks {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{uplink}: {error}"));
        switch
            .uplink(connected(uplink).map_err(named)?)
            .map_err(named)?;
    }
    Ok(switch)
}

/// A socket that is bound to the local end and connected to the remote one.
fn connected(uplink: &Address) -> io::Result<UdpSocket> {
    let Address::Udp { local, remote } = uplink else {
        let what = "not of the form udp:LOCAL,REMOTE";
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    };
    let socket = UdpSocket::bind(local)?;
    let is_ipv4 = socket.local_addr()?.is_ipv4();
    let remote = remote
        .to_socket_addrs()?
        .find(|remote| remote.is_ipv4() == is_ipv4);
    let Some(remote) = remote else {
        let what = "the ends are not of one kind";
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    };
    socket.connect(remote)?;
    let held = HELD;
    // SAFETY: the descriptor is open as long as the socket lives, and the kernel reads the number of which it is told the size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const held).cast(),
            size_of_val(&held) as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Is the switch, until the last process has gone.
pub fn serve(path: &Path, uplinks: &[Address]) -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or(LOG, "error")).init();
    let switch = match bind(path, uplinks) {
        Ok(switch) => {
            // If no process reads it, none connects either.
            let _ = writeln!(io::stdout(), "{READY}");
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
