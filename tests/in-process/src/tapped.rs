//! The model's platform with a tap: a test acts beside the driver's calls of it.

// UNSAFETY: implements the seam's unsafe trait by passing everything on.
#![expect(unsafe_code)]

use crate::pass_on;
use crate::platform::ModelPlatform;
use bareverbs_core::platform::{Dma, DmaError, Platform, VectorSet};
use std::alloc::Layout;
use std::ops::Deref;
use std::time::Duration;

/// A call of the platform that a tap sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A register is read.
    Read,
    /// The register of 32 bits at this offset is written.
    Write(usize),
    /// A doorbell of 64 bits is rung.
    Doorbell,
    /// The clock is read.
    Now,
    /// A turn of a wait loop.
    Relax,
    /// Waiting for an interrupt.
    Sleep,
}

/// Actions beside the driver's calls, on the thread that calls.
pub trait Tap {
    /// Acts before a call is passed on.
    fn before(&self, call: Call) {
        let _ = call;
    }

    /// Acts after a register was written, or a turn of a wait loop.
    fn after(&self, call: Call) {
        let _ = call;
    }

    /// Returns `true` if doorbells are lost, so that the device does nothing by itself.
    fn is_deaf(&self) -> bool {
        false
    }

    /// Memory of `len` bytes was allocated at `at`.
    fn allocated(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// The memory at `at` is about to be given back.
    fn freed(&self, at: usize) {
        let _ = at;
    }

    /// The time by which the driver's clock is ahead of the model's. It never becomes less.
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }
}

/// One function of a world, with a tap, to which it dereferences.
pub struct Tapped<T> {
    inner: ModelPlatform,
    tap: T,
}

impl<T: Tap> Tapped<T> {
    /// Puts a tap before a platform.
    #[must_use]
    pub fn new(inner: ModelPlatform, tap: T) -> Self {
        Self { inner, tap }
    }
}

impl<T> Deref for Tapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.tap
    }
}

// SAFETY: every requirement is passed on to the model's platform; a tap sees addresses, and changes nothing of what is handed
// out.
unsafe impl<T: Tap> Platform for Tapped<T> {
    fn read_be32(&self, offset: usize) -> u32 {
        self.tap.before(Call::Read);
        self.inner.read_be32(offset)
    }

    fn write_be32(&self, offset: usize, value: u32) {
        self.tap.before(Call::Write(offset));
        self.inner.write_be32(offset, value);
        self.tap.after(Call::Write(offset));
    }

    fn write_be64(&self, offset: usize, value: u64) {
        self.tap.before(Call::Doorbell);
        if !self.tap.is_deaf() {
            self.inner.write_be64(offset, value);
        }
        self.tap.after(Call::Doorbell);
    }

    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        let dma = self.inner.dma_alloc(layout)?;
        self.tap.allocated(dma.ptr.as_ptr() as usize, layout.size());
        Ok(dma)
    }

    unsafe fn dma_free(&self, dma: Dma) {
        self.tap.freed(dma.ptr.as_ptr() as usize);
        // SAFETY: the caller's promise.
        unsafe { self.inner.dma_free(dma) }
    }

    fn now(&self) -> Duration {
        self.tap.before(Call::Now);
        self.inner.now() + self.tap.ahead()
    }

    fn relax(&self) {
        self.tap.before(Call::Relax);
        self.inner.relax();
        self.tap.after(Call::Relax);
    }

    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        self.tap.before(Call::Sleep);
        let ahead = self.tap.ahead();
        self.inner
            .wait_interrupt(vectors, deadline.saturating_sub(ahead))
    }

    pass_on!(
        inner: bar_len, device_id, dma_map, page_iova, dma_unmap, interrupt_vectors, wake
    );
}
