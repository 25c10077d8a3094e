//! Deferred destroy: how the poller of a CQ detaches QPs that were destroyed or reset, see [`crate::memory::slots`],
//! and how a CQ is destroyed that was dropped while queues used it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use bareverbs_firmware_cmds::cq::DestroyCqIn;
use bareverbs_firmware_cmds::numbers::Cqn;

use crate::device::Device;
use crate::memory::dma::DmaMemory;
use crate::memory::slots::{CQ_ABANDONED, CqSlot, DEAD, NONE, SrqSlot, detach};
use crate::platform::Platform;
use crate::verbs::cq::ring::Ring;

/// Drops the completions of the QPs on the list of CQ `index`, and frees the QPs that are detached from all their CQs.
pub(crate) fn reap<P: Platform>(
    device: &Device<'_, P>,
    cq: &CqSlot,
    index: u32,
    ring: &mut Ring<'_>,
) {
    cq.take_detached(ring.qps, index, |at, slot, flags, side| {
        if flags & detach::PENDING << side != 0 {
            ring.flush_stale(at, None);
            finish(device, at, side);
        } else if flags & detach::RESET << side != 0 {
            slot.flags.fetch_and(!(detach::RESET << side), AcqRel);
            ring.flush_stale(at, Some(slot.stale_before[side].load(Relaxed)));
        }
    });
}

/// A destroyed QP is detached from one of its CQs; the last one frees it.
pub(crate) fn finish<P: Platform>(device: &Device<'_, P>, index: u32, side: usize) {
    let tables = &device.tables;
    let Some(slot) = tables.qps.get(index as usize) else {
        return;
    };
    slot.clear_cq(side);
    let before = slot.flags.fetch_and(!(detach::PENDING << side), AcqRel);
    let both = detach::PENDING | detach::PENDING << 1;
    if before & both != detach::PENDING << side {
        return;
    }
    let srq = slot.srq.swap(NONE, Relaxed);
    if let Some(block) = slot.block.take() {
        block.free(device.platform());
    }
    tables.free_qp(index);
    if let Some(srq_slot) = tables.srqs.get(srq as usize) {
        unpin_srq(device, srq_slot, srq);
    }
}

/// Marks the QP of a slot as destroyed, and queues it for its CQs.
pub(crate) fn detach<P: Platform>(device: &Device<'_, P>, index: u32) {
    let tables = &device.tables;
    let Some(slot) = tables.qps.get(index as usize) else {
        return;
    };
    slot.qpn_tag.fetch_or(DEAD, Release);
    let cqs = [slot.cqs[0].load(Relaxed), slot.cqs[1].load(Relaxed)];
    let sides = if cqs[0] == cqs[1] { 1 } else { 2 };
    let pending = if sides == 1 {
        detach::PENDING
    } else {
        detach::PENDING | detach::PENDING << 1
    };
    slot.flags.fetch_or(pending, AcqRel);
    for (side, &cq) in cqs.iter().enumerate().take(sides) {
        let queued = tables
            .cqs
            .get(cq as usize)
            .is_some_and(|cq| cq.push_detached(tables.qps, index, side));
        if !queued {
            finish(device, index, side);
        }
    }
}

/// Marks the completions of this QP that its CQs hold as stale.
pub(crate) fn mark_stale<P: Platform>(device: &Device<'_, P>, index: u32) {
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
        // The lock keeps the completions in place until the QP is queued for the CQ's owner.
        let ring = loop {
            match cq.ring.try_lock() {
                Some(ring) => break ring,
                // The owner resizes the CQ, which takes a command.
                None => device.platform().relax(),
            }
        };
        // A CQ without an owner is not polled.
        let polled = cq.pending_flags.load(Acquire) & CQ_ABANDONED == 0;
        if let Some(ring) = ring.as_ref().filter(|_| polled) {
            slot.stale_before[side].store(ring.producer(), Relaxed);
            slot.flags.fetch_or(detach::RESET << side, AcqRel);
            let _ = cq.push_detached(tables.qps, index, side);
        }
    }
}

/// One fewer queue uses the CQ. If its owner has dropped it, the last one destroys it.
pub(crate) fn release_cq<P: Platform>(device: &Device<'_, P>, slot: &CqSlot, index: u32) {
    if slot.users.fetch_sub(1, AcqRel) == 1 && slot.pending_flags.load(Acquire) & CQ_ABANDONED != 0
    {
        destroy_abandoned(device, slot, index);
    }
}

/// Destroys a CQ that has neither an owner nor users. Its memory, which is in quarantine, stays there if the firmware refuses.
#[cold]
fn destroy_abandoned<P: Platform>(device: &Device<'_, P>, slot: &CqSlot, index: u32) {
    let ring = slot.ring.lock().take();
    let cqn = Cqn::from_low_bits(slot.cqn.load(Relaxed));
    let mut command = DestroyCqIn::new();
    command.set_cqn(cqn.number());
    match device.execute(&command) {
        Ok(_) => {
            let own = |memory: &DmaMemory| ring.as_ref().is_some_and(|ring| ring.is_in(memory));
            device.end_quarantine_of(own);
        }
        Err(error) => log::warn!("{cqn} stays with the device: {error}"),
    }
    device.tables.free_cq(index);
}

/// One fewer user of the SRQ's memory; the last one frees it.
pub(crate) fn unpin_srq<P: Platform>(device: &Device<'_, P>, slot: &SrqSlot, index: u32) {
    if slot.pins.fetch_sub(1, AcqRel) == 1 {
        if let Some(block) = slot.block.take() {
            block.free(device.platform());
        }
        device.tables.free_srq(index);
    }
}
