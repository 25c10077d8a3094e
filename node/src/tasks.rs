//! Tasks on tokio: what drives the manager that they use.

// UNSAFETY: gives a descriptor to tokio's reactor.
#![expect(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bareverbs_cm::rdma::{RdmaError, Resolver};
use bareverbs_core::VectorSet;
use tokio::io::unix::AsyncFd;
use tokio::select;

use crate::error::Error;
use crate::platform::DevicePlatform;

/// Drives a manager's device and the manager, until the device fails: at the device's interrupts, when something is due, and
/// when a call of another task has made it due. To be awaited beside the tasks that use the manager, in the same thread, on
/// a runtime with I/O and time (`enable_all`). The device has to be opened with interrupts
/// ([`Options::interrupts`](crate::Options::interrupts)).
///
/// This is all that depends on the executor; on another one it is the same loop with that one's descriptors and timers.
///
/// # Errors
///
/// The device's failure ([`RdmaError`]), or what the operating system says about the descriptor.
pub async fn drive<R: Resolver>(
    cm: &bareverbs_cm::rdma::AsyncCm<'_, '_, '_, DevicePlatform, R>,
) -> Result<Infallible, DriveError> {
    let channel = cm.device().platform().event_channel(VectorSet::ALL)?;
    // SAFETY: the channel has one descriptor, which stays open for as long as it lives; it lives in the `AsyncFd`.
    let registered = unsafe { AsyncFd::register(channel) };
    let mut interrupts = registered.map_err(io::Error::from)?;
    loop {
        let deadline = cm.turn()?.unwrap_or(Duration::MAX);
        let left = deadline.saturating_sub(cm.with(|cm| cm.now()));
        select! {
            interrupt = interrupts.readable_mut() => {
                let mut interrupt = interrupt?;
                // Before the turn: what is raised from here on makes it readable again.
                interrupt.get_inner_mut().acknowledge()?;
                interrupt.clear_ready();
            }
            () = tokio::time::sleep(left) => {}
            () = cm.due() => {}
        }
    }
}

/// Why a manager is not driven any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The device has failed.
    #[error("{0}")]
    Device(RdmaError),
    /// The operating system refused something.
    #[error("the device's event channel: {0}")]
    Os(io::Error),
    /// The node did not come up, or did not go down ([`Node::spawn`](crate::Node::spawn)).
    #[error("{0}")]
    Node(Error),
    /// The node's thread has panicked ([`Node::spawn`](crate::Node::spawn)).
    #[error("the node's thread panicked")]
    Panicked,
}

impl From<RdmaError> for DriveError {
    fn from(error: RdmaError) -> Self {
        Self::Device(error)
    }
}

impl From<Error> for DriveError {
    fn from(error: Error) -> Self {
        Self::Node(error)
    }
}

impl From<io::Error> for DriveError {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}
