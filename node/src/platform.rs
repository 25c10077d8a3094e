//! The platform of a device that is chosen when the program runs.

// UNSAFETY: implements the platform seam's unsafe trait; every method goes to the platform of the variant.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::platform::{Dma, DmaError, Mapping, Platform, VectorSet};
use bareverbs_vfio::VfioDevice;

#[cfg(feature = "model")]
use bareverbs_in_process::{ModelPlatform, World};

/// A device: a function on VFIO, or (with the feature `model`) a device model.
///
/// The choice costs a comparison for each register access. A program that has one kind of device only gives its platform to
/// [`Node::new`](crate::Node::new) instead.
#[derive(Clone)]
pub struct DevicePlatform(Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Vfio(Arc<VfioDevice>),
    #[cfg(feature = "model")]
    Model {
        platform: ModelPlatform,
        /// Its threads run as long as this is there.
        _world: Arc<World>,
    },
}

impl DevicePlatform {
    /// Function `index` of a world of models, which exists as long as a platform of it.
    ///
    /// # Panics
    ///
    /// If the world has no such function.
    #[cfg(feature = "model")]
    #[must_use]
    pub fn model(world: &Arc<World>, index: usize) -> Self {
        Self(Kind::Model {
            platform: world.platform(index),
            _world: world.clone(),
        })
    }
}

impl DevicePlatform {
    /// The file and the offset in it where a range of a card's BAR 0 can be mapped; nothing for a model, which has no such file.
    #[must_use]
    pub fn mappable_registers(&self, range: &Range<usize>) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.0 {
            Kind::Vfio(device) => device.mappable_registers(range),
            #[cfg(feature = "model")]
            Kind::Model { .. } => None,
        }
    }

    /// Returns `true` for a function on VFIO.
    #[must_use]
    pub fn is_card(&self) -> bool {
        matches!(self.0, Kind::Vfio(_))
    }

    /// The variant.
    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }
}

impl From<VfioDevice> for DevicePlatform {
    fn from(device: VfioDevice) -> Self {
        Self(Kind::Vfio(Arc::new(device)))
    }
}

impl fmt::Debug for DevicePlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Vfio(device) => device.fmt(f),
            #[cfg(feature = "model")]
            Kind::Model { .. } => f.write_str("model"),
        }
    }
}

/// Calls the same function of the variant's platform.
macro_rules! pass_on {
    ($self:ident, $platform:ident => $call:expr) => {
        match &$self.0 {
            Kind::Vfio($platform) => $call,
            #[cfg(feature = "model")]
            Kind::Model {
                platform: $platform,
                ..
            } => $call,
        }
    };
}

// SAFETY: every duty is that of the platform of the variant, which never changes. `WRITE_COMBINING` is `false`, as it is for
// both.
unsafe impl Platform for DevicePlatform {
    #[inline]
    fn bar_len(&self) -> usize {
        pass_on!(self, platform => platform.bar_len())
    }
    #[inline]
    fn read_be32(&self, offset: usize) -> u32 {
        pass_on!(self, platform => platform.read_be32(offset))
    }
    #[inline]
    fn write_be32(&self, offset: usize, value: u32) {
        pass_on!(self, platform => platform.write_be32(offset, value));
    }
    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        pass_on!(self, platform => platform.write_be64(offset, value));
    }
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        pass_on!(self, platform => platform.dma_alloc(layout))
    }
    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise.
        pass_on!(self, platform => unsafe { platform.dma_free(dma) });
    }
    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // SAFETY: the caller's promise.
        pass_on!(self, platform => unsafe { platform.dma_map(region) })
    }
    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        pass_on!(self, platform => platform.page_iova(mapping, index))
    }
    unsafe fn dma_unmap(&self, mapping: Mapping) {
        // SAFETY: the caller's promise.
        pass_on!(self, platform => unsafe { platform.dma_unmap(mapping) });
    }
    fn now(&self) -> Duration {
        pass_on!(self, platform => platform.now())
    }
    #[inline]
    fn relax(&self) {
        pass_on!(self, platform => platform.relax());
    }
    fn device_id(&self) -> Option<u16> {
        match &self.0 {
            Kind::Vfio(device) => Some(device.device_id()),
            #[cfg(feature = "model")]
            Kind::Model { platform, .. } => platform.device_id(),
        }
    }
    fn interrupt_vectors(&self) -> u16 {
        pass_on!(self, platform => platform.interrupt_vectors())
    }
    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        pass_on!(self, platform => platform.wait_interrupt(vectors, deadline))
    }
    fn wake(&self) -> bool {
        pass_on!(self, platform => platform.wake())
    }
}
