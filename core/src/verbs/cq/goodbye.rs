//! Goodbyes: what the poller of a CQ does about QPs that were destroyed or reset, see [`crate::slots`].

// UNSAFETY: memory that was kept in atomics becomes an owned value again.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use crate::device::Device;
use crate::memory::dma::DmaMemory;
use crate::memory::slots::{CqSlot, DEAD, NONE, QpSlot, SrqSlot, goodbye};
use crate::platform::{Dma, Platform};
use crate::verbs::cq::ring::Ring;

/// Drops the completions of the QPs on the list of CQ `index`, and frees the QPs that nobody waits for any more.
pub(crate) fn reap<P: Platform>(
    device: &Device<'_, P>,
    cq: &CqSlot,
    index: u32,
    ring: &mut Ring<'_>,
) {
    let mut link = cq.take_goodbyes();
    while let Some(at) = link.checked_sub(1) {
        let Some(slot) = ring.qps.get(at as usize) else {
            return;
        };
        // The send side stands for both if they are the same CQ.
        let side = usize::from(slot.cqs[0].load(Relaxed) != index);
        link = slot.links[side].load(Relaxed);
        slot.flags.fetch_and(!(goodbye::QUEUED << side), AcqRel);
        let flags = slot.flags.load(Acquire);
        if flags & goodbye::PENDING << side != 0 {
            ring.void(at, None);
            finish(device, at, side);
        } else if flags & goodbye::RESET << side != 0 {
            slot.flags.fetch_and(!(goodbye::RESET << side), AcqRel);
            ring.void(at, Some(slot.stale_before[side].load(Relaxed)));
        }
    }
}

/// One CQ is done with a destroyed QP; the last one frees it.
pub(crate) fn finish<P: Platform>(device: &Device<'_, P>, index: u32, side: usize) {
    let tables = &device.tables;
    let Some(slot) = tables.qps.get(index as usize) else {
        return;
    };
    let before = slot.flags.fetch_and(!(goodbye::PENDING << side), AcqRel);
    let both = goodbye::PENDING | goodbye::PENDING << 1;
    if before & both != goodbye::PENDING << side {
        return;
    }
    let srq = slot.srq.swap(NONE, Relaxed);
    // SAFETY: the block was put there once by the destroyed QP, and neither device nor any CQ looks at it any more.
    unsafe {
        free(
            device,
            &slot.block,
            &slot.block_iova,
            &slot.block_len,
            QpSlot::BLOCK_ALIGN,
        );
    }
    tables.give_qp(index);
    if let Some(srq_slot) = tables.srqs.get(srq as usize) {
        unpin_srq(device, srq_slot, srq);
    }
}

/// Marks the QP of a slot as destroyed and tells its CQs.
pub(crate) fn part<P: Platform>(device: &Device<'_, P>, index: u32) {
    let tables = &device.tables;
    let Some(slot) = tables.qps.get(index as usize) else {
        return;
    };
    slot.key.fetch_or(DEAD, Release);
    let cqs = [slot.cqs[0].load(Relaxed), slot.cqs[1].load(Relaxed)];
    let sides = if cqs[0] == cqs[1] { 1 } else { 2 };
    let pending = if sides == 1 {
        goodbye::PENDING
    } else {
        goodbye::PENDING | goodbye::PENDING << 1
    };
    slot.flags.fetch_or(pending, AcqRel);
    for (side, &cq) in cqs.iter().enumerate().take(sides) {
        let told = tables
            .cqs
            .get(cq as usize)
            .is_some_and(|cq| cq.push_goodbye(tables.qps, index, side));
        if !told {
            finish(device, index, side);
        }
    }
}

/// Tells the CQs that the completions of this QP that they hold are stale.
pub(crate) fn forget<P: Platform>(device: &Device<'_, P>, index: u32) {
    let tables = &device.tables;
    let Some(slot) = tables.qps.get(index as usize) else {
        return;
    };
    let cqs = [slot.cqs[0].load(Relaxed), slot.cqs[1].load(Relaxed)];
    let sides = if cqs[0] == cqs[1] { 1 } else { 2 };
    for (side, &cq) in cqs.iter().enumerate().take(sides) {
        let Some(cq) = tables.cqs.get(cq as usize) else {
            continue;
        };
        // The lock keeps the completions where they are until the CQ's owner was told.
        let ring = cq.ring.lock();
        // A CQ without an owner is not polled.
        if let Some(ring) = &*ring {
            slot.stale_before[side].store(ring.producer(), Relaxed);
            slot.flags.fetch_or(goodbye::RESET << side, AcqRel);
            let _ = cq.push_goodbye(tables.qps, index, side);
        }
    }
}

/// One fewer looks at the SRQ's memory; the last one frees it.
pub(crate) fn unpin_srq<P: Platform>(device: &Device<'_, P>, slot: &SrqSlot, index: u32) {
    if slot.pins.fetch_sub(1, AcqRel) == 1 {
        // SAFETY: put there once by the destroyed SRQ; the last to look at it is this one.
        unsafe {
            free(
                device,
                &slot.block,
                &slot.block_iova,
                &slot.block_len,
                SrqSlot::BLOCK_ALIGN,
            );
        }
        device.tables.give_srq(index);
    }
}

/// Keeps a block for [`free`].
pub(crate) fn keep(memory: DmaMemory, block: &AtomicPtr<u8>, iova: &AtomicU64, len: &AtomicUsize) {
    let dma = memory.into_raw();
    iova.store(dma.iova, Relaxed);
    len.store(dma.layout.size(), Relaxed);
    block.store(dma.ptr.as_ptr(), Release);
}

/// Frees a kept block, if there is one.
///
/// # Safety
/// Nobody uses the block any more, neither device nor host, and it was allocated with this alignment.
unsafe fn free<P: Platform>(
    device: &Device<'_, P>,
    block: &AtomicPtr<u8>,
    iova: &AtomicU64,
    len: &AtomicUsize,
    align: usize,
) {
    let Some(ptr) = NonNull::new(block.swap(core::ptr::null_mut(), AcqRel)) else {
        return;
    };
    let Ok(layout) = Layout::from_size_align(len.load(Relaxed), align) else {
        return;
    };
    let dma = Dma {
        ptr,
        iova: iova.load(Relaxed),
        layout,
    };
    // SAFETY: these are the parts of one allocation, as `keep` took them apart.
    unsafe { DmaMemory::from_raw(dma) }.free(device.platform());
}
