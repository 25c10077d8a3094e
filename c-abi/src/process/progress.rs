//! The thread that drives a device: events, the connection manager's messages and timers.

// UNSAFETY: signal masks of the C library, and raw pointers of the registry.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bareverbs_node::verbs::{AsyncEvent, VectorSet};
use bareverbs_node::write_report;

use crate::process::device;
use crate::process::failure::{Result, as_nothing};
use crate::process::hca::Hca;
use crate::verbs::async_event;
use crate::{rdmacm, rsocket};

/// How long the thread sleeps at a time when the device has failed, which has no interrupts then.
const FAILED: Duration = Duration::from_millis(5);

/// The process that opened the devices.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// No signal reaches threads that are made meanwhile: signals are for the program's own threads, whose calls they interrupt.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are written before they are read; the second one is empty if it is not written.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Starts the thread of a device.
pub(crate) fn start(hca: &'static Hca) -> Result<()> {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function is there until the process ends. If it is not taken, peers find out by their time-outs.
        unsafe { libc::atexit(at_exit) };
    });
    thread::Builder::new()
        .name("bareverbs".into())
        .spawn(move || run(hca))?;
    Ok(())
}

/// Whether this process is a child of the one that opened the devices, which has none of its threads.
pub(crate) fn in_child() -> bool {
    OWNER.load(Ordering::Relaxed) != std::process::id()
}

extern "C" fn at_exit() {
    as_nothing(|| {
        if in_child() {
            return Ok(());
        }
        rsocket::end();
        for device in device::devices()? {
            if let Some(hca) = device.hca_if_up() {
                hca.end();
            }
        }
        Ok(())
    });
}

fn run(hca: &'static Hca) {
    let mut deadline = hca.now();
    let mut failed = false;
    while !hca.is_ending() {
        let waited = hca.device.wait_for(VectorSet::ALL, deadline);
        if let Err(error) = waited {
            if !failed {
                log::error!("{error}");
                hca.device.recorder().and_then(write_report);
            }
            failed = true;
            thread::park_timeout(FAILED);
        }
        hca.begin_turn();
        // Before the manager, which another thread may have for long.
        deliver_completion_events(hca);
        let now = hca.now();
        let mut events = Vec::new();
        deadline = Duration::MAX;
        match hca.manager_quietly() {
            Ok(mut manager) => {
                let polled = manager.poll(now);
                if let Err(error) = polled
                    && !failed
                {
                    log::error!("connection manager: {error}");
                }
                while let Some(event) = hca.device.next_async_event() {
                    manager.handle_async_event(&event);
                    if let AsyncEvent::CommunicationEstablished { qpn } = &event {
                        // In place of a confirmation that was lost; QPs of C are not the manager's.
                        let id = hca
                            .registry
                            .with(|objects| objects.cm_ids.get(&qpn.number()).copied());
                        if let Some(Err(error)) = id.map(|id| manager.notify(id)) {
                            log::debug!("{error}");
                        }
                    }
                    events.push(event);
                }
                if let Some(due) = manager.next_deadline(now) {
                    deadline = due;
                }
            }
            Err(_) => {
                while let Some(event) = hca.device.next_async_event() {
                    events.push(event);
                }
            }
        }
        for event in &events {
            async_event::deliver(hca, event);
            // The manager may have executed commands for it, which see the interrupts of what the next turn finds.
            deadline = now;
        }
        // Once more after the manager's commands, for the same reason.
        deliver_completion_events(hca);
        rdmacm::signal_channels();
        if let Some(due) = rsocket::progress(hca, now) {
            deadline = deadline.min(due);
        }
        hca.end_turn();
    }
}

/// Puts CQs that have got an event into their channels.
fn deliver_completion_events(hca: &Hca) {
    hca.registry.with(|objects| {
        for cq in objects.cqs.values() {
            // SAFETY: a CQ in the registry is there, and stays while the registry is locked.
            unsafe { &**cq }.deliver();
        }
    });
}
