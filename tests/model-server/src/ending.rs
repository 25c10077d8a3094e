//! The end of the process: by SIGTERM or SIGINT, or because a part of it failed.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::signal::register_signal_handler;

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;

/// Written to by the signals' handler, which may do no more than that.
static SIGNALLED: OnceLock<EventFd> = OnceLock::new();

// Generic, since the information that comes along has a type that needs no name here.
extern "C" fn on_signal<Information>(_: c_int, _: *mut Information, _: *mut c_void) {
    if let Some(event) = SIGNALLED.get() {
        // It can only fail when the counter is full, and then a signal was reported already.
        let _ = event.write(1);
    }
}

/// Where threads report that they cannot go on.
#[derive(Clone)]
pub(crate) struct Ending(Sender<Result<(), String>>);

impl Ending {
    /// Takes the signals over. What is received first is how the process ends.
    pub(crate) fn new() -> io::Result<(Self, Receiver<Result<(), String>>)> {
        let (sender, receiver) = mpsc::channel();
        let event = EventFd::new(0)?;
        let signalled = event.try_clone()?;
        if SIGNALLED.set(event).is_err() {
            return Err(io::Error::other("the signals are taken already"));
        }
        for signal in [SIGTERM, SIGINT] {
            register_signal_handler(signal, on_signal)
                .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        }
        let ending = Self(sender);
        let by_signal = ending.clone();
        std::thread::spawn(move || {
            // The handler interrupts this read if it runs in this thread.
            while signalled.read().is_err() {}
            by_signal.end(Ok(()));
        });
        Ok((ending, receiver))
    }

    /// Ends the process.
    pub(crate) fn end(&self, how: Result<(), String>) {
        // The receiver is gone when the process is ending already.
        let _ = self.0.send(how);
    }

    /// Starts a thread whose end, by itself or by a panic, is the process's.
    pub(crate) fn spawn<T: std::fmt::Display>(
        &self,
        name: String,
        f: impl FnOnce() -> T + Send + 'static,
    ) {
        let ending = self.clone();
        std::thread::spawn(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            ending.end(Err(match ended {
                Ok(why) => format!("{name}: {why}"),
                Err(_) => format!("{name} panicked"),
            }));
        });
    }
}
