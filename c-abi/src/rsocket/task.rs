//! Calls that may wait, as tasks: what a call does is a future, and the thread sleeps outside of it, in the kernel's `poll`, where
//! it may be cancelled. The future, with all that it holds, is lent to the thread meanwhile.

// UNSAFETY: calls of the C library, and futures that borrow from their callers.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::{needs_drop, transmute};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use libc::{nfds_t, pollfd, ssize_t};

use crate::process::cancel;
use crate::process::failure::{Errno, Result, guarded};

/// The arguments of the `poll` that a task waits for.
#[derive(Debug, Clone, Copy)]
struct Sleep {
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
}

thread_local! {
    /// The task that runs asks for this, and is then told what `poll` has said.
    static ASKED: Cell<Option<Sleep>> = const { Cell::new(None) };
    static SLEPT: Cell<Result<()>> = const { Cell::new(Ok(())) };
}

impl Sleep {
    /// Sleeps. The thread may be cancelled meanwhile.
    fn sleep(self) -> Result<()> {
        // SAFETY: the task has given so many entries, which can be written, and keeps them until it runs again.
        match unsafe { cancel::poll(self.fds, self.count, self.timeout) } {
            ..0 => Err(Errno::last()),
            _ => Ok(()),
        }
    }
}

/// Lets the thread sleep until one of these is ready, or so many milliseconds; for ever if they are negative. For tasks only.
///
/// # Errors
/// EINTR after a signal.
pub(super) async fn sleep(fds: &mut [pollfd], timeout: c_int) -> Result<()> {
    let mut asked = false;
    std::future::poll_fn(|_| {
        if asked {
            return Poll::Ready(SLEPT.get());
        }
        asked = true;
        ASKED.set(Some(Sleep {
            fds: fds.as_mut_ptr(),
            count: fds.len() as nfds_t,
            timeout,
        }));
        Poll::Pending
    })
    .await
}

/// A call that may wait.
type Task = Pin<Box<dyn Future<Output = Result<usize>>>>;

/// A task's turn ends in one of these ways.
#[derive(Clone, Copy)]
enum Turn {
    Done(Result<usize>),
    Sleeps(Sleep),
}

/// Runs a task until it is done or sleeps.
fn turn<T>(task: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> std::result::Result<T, Sleep> {
    match task.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => match ASKED.take() {
            Some(sleep) => Err(sleep),
            None => unreachable!("tasks wait for `sleep` only"),
        },
    }
}

/// Runs a task to its end, within a call that is not cancelled.
pub(super) fn block_on<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    loop {
        match turn(task.as_mut()) {
            Ok(result) => return result,
            Err(sleep) => SLEPT.set(sleep.sleep()),
        }
    }
}

/// The result of a call that may wait and returns a number, or -1 with an errno. The thread may be cancelled at its beginning, and
/// while it sleeps: nothing is to be dropped in `call`, which makes the task, nor where this is called.
pub(super) fn as_length<C, F>(call: C) -> ssize_t
where
    C: FnOnce() -> F,
    F: Future<Output = Result<usize>>,
{
    const { assert!(!needs_drop::<C>()) };
    cancel::point();
    let result = match guarded(|| Ok(task(call()))) {
        Ok(task) => cancel::holding(task, run),
        Err(errno) => Err(errno),
    };
    match result {
        Ok(length) => ssize_t::try_from(length).unwrap_or(ssize_t::MAX),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

fn task<'a>(future: impl Future<Output = Result<usize>> + 'a) -> Task {
    let task: Pin<Box<dyn Future<Output = Result<usize>> + 'a>> = Box::pin(future);
    // SAFETY: it runs in `as_length` only, for whose caller what it borrows is there. If the thread is cancelled it is dropped
    // after its caller has gone, and looks at nothing of the caller's then: it borrows memory of the program.
    unsafe { transmute(task) }
}

/// Runs a task to its end. The thread may be cancelled while it sleeps.
fn run(task: &mut Task) -> Result<usize> {
    loop {
        let next = guarded(|| {
            Ok(match turn(task.as_mut()) {
                Ok(result) => Turn::Done(result),
                Err(sleep) => Turn::Sleeps(sleep),
            })
        });
        match next {
            Ok(Turn::Sleeps(sleep)) => SLEPT.set(sleep.sleep()),
            Ok(Turn::Done(result)) => return result,
            Err(errno) => return Err(errno),
        }
    }
}
