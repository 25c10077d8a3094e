//! A wire out of the process, and the threads that read and write it.

use crate::shared_memory::SharedMemory;
use connectx_model::link::datagram;
use std::sync::Arc;
use std::thread::JoinHandle;

pub(crate) struct Exit {
    wire: Arc<datagram::Wire>,
    threads: [JoinHandle<()>; 2],
    sharing: JoinHandle<()>,
}

impl Exit {
    /// Starts the threads; `wake` is called when something has arrived and nothing was there before, or something can leave
    /// again, `cut` when nothing more arrives.
    pub(crate) fn new(
        wire: Arc<datagram::Wire>,
        wake: impl Fn() + Clone + Send + 'static,
        cut: impl FnOnce() + Send + 'static,
    ) -> Self {
        let [reader, writer, shares] = [(); 3].map(|()| wire.clone());
        let (resume, stir) = (wake.clone(), wake.clone());
        let read = move || {
            if let Err(error) = reader.read(wake) {
                log::error!("the link is down, as nothing more arrives: {error}");
                cut();
            }
        };
        let threads = [
            std::thread::spawn(read),
            std::thread::spawn(move || writer.write(resume)),
        ];
        Self {
            wire,
            threads,
            sharing: std::thread::spawn(move || shares.share(&SharedMemory, stir)),
        }
    }

    /// Lets what was sent before leave, and ends the threads.
    pub(crate) fn close(self) {
        self.wire.close();
        for thread in self.threads {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
        // Until then, what was sent may have waited for room.
        self.wire.stop_sharing();
        let _ = self.sharing.join();
        if let Some(claim) = self.wire.claim() {
            claim.release();
        }
    }
}
