//! The client, which asks a process that has a device in use.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{ANSWER, Count, Request};

/// The time that an answer may take: the same as that of a command to the device.
const PATIENCE: Duration = Duration::from_secs(60);
/// The length of the longest answer that is read: it has room for a line for each of 2^18 QPs.
const LONGEST: u64 = 256 << 20;

fn ask(path: &Path, request: Request) -> io::Result<String> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(request.line().as_bytes())?;
    let mut text = String::new();
    socket.take(LONGEST).read_to_string(&mut text)?;
    match text.split_once('\n') {
        Some((ANSWER, answer)) => Ok(answer.into()),
        Some((why, _)) => Err(Error::other(why.to_owned())),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Asks the process that serves a node at this path what the port counts.
///
/// # Errors
///
/// The operating system, or the other process, reports an error.
pub fn ask_counters(path: &Path) -> io::Result<Count> {
    let text = ask(path, Request::Counters)?;
    Count::from_lines(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Asks it for the QPs and CQs that are alive, as [`list`](super::list) lists them.
///
/// # Errors
///
/// The same errors end it as [`ask_counters`].
pub fn ask_resources(path: &Path, json: bool) -> io::Result<String> {
    ask(
        path,
        match json {
            true => Request::ResourcesJson,
            false => Request::Resources,
        },
    )
}
