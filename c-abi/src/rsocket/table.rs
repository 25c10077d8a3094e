//! All rsockets, by their descriptors and by what the connection manager knows them by.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::process::failure::{Errno, Result, lock};
use crate::rsocket::socket::Socket;

#[derive(Default)]
struct Table {
    by_number: Option<HashMap<c_int, Arc<Socket>>>,
    by_serial: Option<HashMap<u64, Weak<Socket>>>,
    serial: u64,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    by_number: None,
    by_serial: None,
    serial: 0,
});

/// The rsocket of a number.
pub(super) fn socket(number: c_int) -> Result<Arc<Socket>> {
    find(number).ok_or(Errno(libc::EBADF))
}

/// The rsocket of a number, if it is one's.
pub(super) fn find(number: c_int) -> Option<Arc<Socket>> {
    lock(&TABLE).by_number.as_ref()?.get(&number).cloned()
}

/// The program gets to know an rsocket; its number.
pub(super) fn publish(socket: Arc<Socket>) -> c_int {
    let number = socket.number();
    let mut table = lock(&TABLE);
    let all = table.by_number.get_or_insert_default();
    all.insert(number, socket);
    number
}

/// The program is done with an rsocket.
pub(super) fn remove(number: c_int) -> Result<Arc<Socket>> {
    let mut table = lock(&TABLE);
    let all = table.by_number.get_or_insert_default();
    all.remove(&number).ok_or(Errno(libc::EBADF))
}

/// The rsocket of an id's context.
pub(super) fn by_serial(serial: u64) -> Option<Arc<Socket>> {
    lock(&TABLE).by_serial.as_ref()?.get(&serial)?.upgrade()
}

/// A number that no rsocket has had.
pub(super) fn next_serial() -> u64 {
    let mut table = lock(&TABLE);
    table.serial += 1;
    table.serial
}

/// Lets events find an rsocket.
pub(super) fn enter(socket: &Arc<Socket>) {
    let mut table = lock(&TABLE);
    let all = table.by_serial.get_or_insert_default();
    all.insert(socket.serial, Arc::downgrade(socket));
}

/// An rsocket goes.
pub(super) fn leave(serial: u64) {
    let mut table = lock(&TABLE);
    table.by_serial.get_or_insert_default().remove(&serial);
}

/// All rsockets that events find and for which `is` holds.
pub(super) fn all(is: impl Fn(&Socket) -> bool) -> Vec<Arc<Socket>> {
    let mut all: Vec<_> = {
        let table = lock(&TABLE);
        let all = table.by_serial.iter().flatten();
        all.filter_map(|(_, socket)| socket.upgrade()).collect()
    };
    // Without the lock: what goes here takes itself out of the table.
    all.retain(|socket| is(socket));
    all
}

/// The time that the end of the process waits for what was sent.
const LAST: Duration = Duration::from_secs(2);

/// The process ends: streams that the program has not closed are closed, so that what was sent arrives.
pub(crate) fn end() {
    let deadline = Instant::now() + LAST;
    for socket in all(|_| true) {
        if let Err(errno) = socket.finish(Some(deadline)) {
            log::debug!("rsocket {}: {errno:?}", socket.number());
        }
    }
}
