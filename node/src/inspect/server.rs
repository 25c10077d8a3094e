//! The server, which has the device: a socket, and a thread that answers at it.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bareverbs_core::{Device, Platform};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::{ANSWER, Request, count, list};

/// The time that a client may take for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Only the user whose process it is may connect.
const MODE: u32 = 0o600;
/// Clients that wait for their turn.
const BACKLOG: i32 = 8;

/// Answers requests while `work` runs. It is a function of the platform's type, as not every platform may be used by two threads.
type Beside<P> = fn(&Device<'_, P>, &Listener, &mut dyn FnMut());

/// A node's socket, and the function that answers at it.
#[derive(Debug, Clone)]
pub(crate) struct Served<P: Platform> {
    path: PathBuf,
    beside: Beside<P>,
}

impl<P: Platform + Send + Sync> Served<P> {
    pub(crate) fn at(path: PathBuf) -> Self {
        let beside = beside;
        Self { path, beside }
    }
}

impl<P: Platform> Served<P> {
    /// Calls `work`, and answers requests meanwhile.
    pub(crate) fn run(
        &self,
        device: &Device<'_, P>,
        work: &mut dyn FnMut(),
    ) -> Result<(), (PathBuf, io::Error)> {
        let listener = Listener::bind(&self.path).map_err(|error| (self.path.clone(), error))?;
        (self.beside)(device, &listener, work);
        Ok(())
    }
}

/// A socket that is listened on; its file ends with it.
#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

impl Listener {
    fn bind(path: &Path) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let new = || -> io::Result<Socket> {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // The mode is set before the file exists, which gets the mode of the socket (`unix_bind` of Linux).
            let socket = File::from(OwnedFd::from(socket));
            socket.set_permissions(Permissions::from_mode(MODE))?;
            Ok(Socket::from(OwnedFd::from(socket)))
        };
        let mut socket = new()?;
        match socket.bind(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path) => {
                fs::remove_file(path)?;
                socket = new()?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        socket.listen(BACKLOG)?;
        Ok(Self {
            socket: UnixListener::from(OwnedFd::from(socket)),
            path: path.into(),
        })
    }
}

/// Returns true for the socket of a process that has ended.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let connected = UnixStream::connect(path);
    is_socket && connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Ends the thread that answers, however the work ends.
struct End<'a>(&'a Listener);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Err(error) = SockRef::from(&self.0.socket).shutdown(std::net::Shutdown::Both) {
            log::warn!("{}: {error}", self.0.path.display());
        }
    }
}

fn beside<P: Platform + Send + Sync>(
    device: &Device<'_, P>,
    listener: &Listener,
    work: &mut dyn FnMut(),
) {
    std::thread::scope(|scope| {
        let _end = End(listener);
        scope.spawn(|| answer_all(device, listener));
        work();
    });
}

/// Answers one client after the other, until the socket is shut down.
fn answer_all<P: Platform>(device: &Device<'_, P>, listener: &Listener) {
    let name = link_name(&listener.path);
    loop {
        match listener.socket.accept() {
            Ok((client, _)) => {
                if let Err(error) = answer(device, &name, client) {
                    log::debug!("{}: {error}", listener.path.display());
                }
            }
            // The node's work is done.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                log::error!(
                    "{}: {error}: it is not served any more",
                    listener.path.display()
                );
                return;
            }
        }
    }
}

/// The port's name in answers: that of the socket, whose characters are those of names.
fn link_name(path: &Path) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let plain = |stem: &&str| {
        stem.bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it))
    };
    format!("{}/1", stem.filter(plain).unwrap_or("node"))
}

fn answer<P: Platform>(
    device: &Device<'_, P>,
    name: &str,
    mut client: UnixStream,
) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&client).take(Request::LONGEST)).read_line(&mut line)?;
    let request = Request::ALL.into_iter().find(|it| it.line() == line);
    let text = match request {
        Some(Request::Counters) => count(device)
            .map(|count| count.to_lines())
            .map_err(|error| error.to_string()),
        Some(Request::Resources) => list(device, name, false).map_err(|error| error.to_string()),
        Some(Request::ResourcesJson) => list(device, name, true).map_err(|error| error.to_string()),
        None => Err("no such request".into()),
    };
    let text = text.map_or_else(|why| format!("{why}\n"), |text| format!("{ANSWER}\n{text}"));
    let (mut rest, end) = (text.as_bytes(), Instant::now() + PATIENCE);
    while !rest.is_empty() {
        // A client that takes a byte now and then is not waited for any longer than one that takes none.
        let left = end.saturating_duration_since(Instant::now());
        client.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        let written = match client.write(rest) {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            written => written?,
        };
        rest = rest.get(written..).unwrap_or_default();
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
