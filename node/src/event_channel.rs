//! One descriptor for all that a device's user waits for, of a device of either kind.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use bareverbs_core::platform::{Platform, VectorSet};

use crate::platform::{DevicePlatform, Kind};

/// A descriptor that is readable once there is a reason to drive the device: what `bareverbs_vfio::EventChannel` is for a
/// card, and the same for a device model. It goes into tokio's `AsyncFd`, mio's `SourceFd` or `poll`.
///
/// [`acknowledge`](Self::acknowledge) it, then drive the device (`Device::poll`, `AsyncCm::turn`); the deadline that has to
/// be kept is the event loop's.
#[derive(Debug)]
pub struct EventChannel(Source);

enum Source {
    Vfio(bareverbs_vfio::EventChannel),
    #[cfg(feature = "model")]
    Model(model::Events),
}

impl DevicePlatform {
    /// A descriptor for the interrupts of these vectors.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) for a device that was opened without interrupts; otherwise what the
    /// operating system says.
    pub fn event_channel(&self, vectors: VectorSet) -> io::Result<EventChannel> {
        if self.interrupt_vectors() == 0 {
            let error = "the device was opened without interrupts";
            return Err(io::Error::new(io::ErrorKind::Unsupported, error));
        }
        Ok(EventChannel(match self.kind() {
            Kind::Vfio(device) => Source::Vfio(device.event_channel(vectors)?),
            #[cfg(feature = "model")]
            Kind::Model { .. } => Source::Model(model::Events::new(self.clone(), vectors)?),
        }))
    }
}

impl EventChannel {
    /// Acknowledges what made the descriptor readable, so that it is not any more until something new happens. Returns
    /// whether there was anything. To be called before the device is driven.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn acknowledge(&mut self) -> io::Result<bool> {
        match &mut self.0 {
            Source::Vfio(channel) => channel.acknowledge(),
            #[cfg(feature = "model")]
            Source::Model(events) => events.acknowledge(),
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Source::Vfio(channel) => channel.as_fd(),
            #[cfg(feature = "model")]
            Source::Model(events) => events.as_fd(),
        }
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(channel) => channel.fmt(f),
            #[cfg(feature = "model")]
            Self::Model(_) => f.write_str("Model"),
        }
    }
}

/// A model has no descriptor: a thread waits for its interrupts, and passes them on.
#[cfg(feature = "model")]
mod model {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use bareverbs_core::platform::{Platform, VectorSet};

    use crate::platform::DevicePlatform;

    pub(super) struct Events {
        notified: UnixStream,
        stop: Arc<AtomicBool>,
        platform: DevicePlatform,
        thread: Option<JoinHandle<()>>,
    }

    impl Events {
        pub(super) fn new(platform: DevicePlatform, vectors: VectorSet) -> io::Result<Self> {
            let (notified, mut notify) = UnixStream::pair()?;
            notified.set_nonblocking(true)?;
            notify.set_nonblocking(true)?;
            let stop = Arc::new(AtomicBool::new(false));
            let thread = std::thread::Builder::new()
                .name("model interrupts".into())
                .spawn({
                    let (platform, stop) = (platform.clone(), stop.clone());
                    move || {
                        while !stop.load(Ordering::Acquire) {
                            let distant = platform.now() + Duration::from_secs(3600);
                            if platform.wait_interrupt(vectors, distant) {
                                // A full socket is readable already.
                                let _ = notify.write(&[1]);
                            }
                        }
                    }
                })?;
            Ok(Self {
                notified,
                stop,
                platform,
                thread: Some(thread),
            })
        }

        pub(super) fn acknowledge(&mut self) -> io::Result<bool> {
            let mut some = false;
            loop {
                match self.notified.read(&mut [0; 64]) {
                    Ok(0) => return Ok(some),
                    Ok(_) => some = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(some),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }

        pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
            self.notified.as_fd()
        }
    }

    impl Drop for Events {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Release);
            self.platform.wake();
            if let Some(thread) = self.thread.take() {
                // A panic of it was printed when it happened.
                let _ = thread.join();
            }
        }
    }
}
