//! The thread that drives a device: events, the connection manager's messages and timers.

// UNSAFETY: registers a function to be called at the end of the process, and raw pointers of the registry.
#![expect(unsafe_code)]

use std::sync::Once;
use std::thread;
use std::time::Duration;

use bareverbs_node::verbs::{AsyncEvent, VectorSet};
use bareverbs_node::write_report;

use crate::process::failure::{Result, as_nothing};
use crate::process::hca::{self, Hca};
use crate::process::{device, owner, tasks};
use crate::rdmacm;
use crate::verbs::async_event;
use crate::verbs::cq::CqObject;

/// The time that the thread sleeps at once when the device has failed, which has no interrupts then.
const FAILED: Duration = Duration::from_millis(5);

/// Starts the thread of a device.
pub(crate) fn start(hca: &'static Hca) -> Result<()> {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        owner::claim();
        // SAFETY: the function is there until the process ends. If it is not taken, peers find out by their time-outs.
        unsafe { libc::atexit(at_exit) };
    });
    thread::Builder::new()
        .name("bareverbs".into())
        .spawn(move || run(hca))?;
    Ok(())
}

extern "C" fn at_exit() {
    as_nothing(|| {
        if owner::in_child() {
            return Ok(());
        }
        tasks::end();
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
            hca.fail();
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
                hca::report_lost_addresses(&mut manager);
                while let Some(event) = hca.device.next_async_event() {
                    manager.handle_async_event(&event);
                    if let AsyncEvent::CommunicationEstablished { qpn } = &event {
                        // In place of a confirmation that was lost; a QP that the program moves itself is not known to the manager.
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
        if let Some(due) = tasks::turn(hca, now) {
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
            unsafe { &*cq.cast::<CqObject>() }.deliver();
        }
    });
}
