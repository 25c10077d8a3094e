//! The hot path does not allocate: once its buffers have grown, packets and completions cost none.

// UNSAFETY: counting allocations needs an allocator of one's own, and its trait is unsafe.
#![expect(unsafe_code)]

mod common;

use common::queues::*;
use connectx_model::{Host, IommuFault, Model};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A host on a cable whose frames lie in one buffer that is used again and again.
struct Cable<'a> {
    memory: &'a mut common::TestHost,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Host for Cable<'_> {
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        self.memory.dma_read(iova, data)
    }

    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        self.memory.dma_write(iova, data)
    }

    fn interrupt(&mut self, _: u16) {}

    fn transmit(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }
}

fn carry(from: &mut Cable<'_>, to: &mut Cable<'_>, model: &mut Model) {
    let mut start = 0;
    for &end in &from.ends {
        model.receive(to, &from.bytes[start..end]);
        start = end;
    }
    from.bytes.clear();
    from.ends.clear();
}

#[test]
fn packets_and_completions_cost_no_allocation() {
    let mut pair = Pair::new();
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
    let memory_a = pair.a.host.alloc(65536, 4096);
    let memory_b = pair.b.host.alloc(65536, 4096);
    let key_a = pair.a.register(pair.pd[0], memory_a, 0, 65536, ALL);
    let key_b = pair.b.register(pair.pd[1], memory_b, 0, 65536, ALL);
    let segments = [remote_segment(0, key_b), data_segment((key_a, 0, 20_000))].concat();
    let send = data_segment((key_a, 0, 3000));
    let mut counted = 0;
    let mut now = pair.a.now;
    let mut frames = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for round in 0..200 {
        for (opcode, segments) in [(8, &segments), (0x10, &segments), (0x0a, &send)] {
            if opcode == 0x0a {
                pair.b.post_receive(&mut qp_b, &[(key_b, 0, 4096)]);
            }
            pair.a.post_send(&mut qp_a, opcode, SIGNALED, 0, segments);
        }
        pair.a.ring_send(&qp_a);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let [(bytes_a, ends_a), (bytes_b, ends_b)] = frames;
        let mut a = Cable {
            memory: &mut pair.a.host,
            bytes: bytes_a,
            ends: ends_a,
        };
        let mut b = Cable {
            memory: &mut pair.b.host,
            bytes: bytes_b,
            ends: ends_b,
        };
        for _ in 0..20 {
            now += Duration::from_micros(1);
            pair.a.model.advance(&mut a, now);
            carry(&mut a, &mut b, &mut pair.b.model);
            pair.b.model.advance(&mut b, now);
            carry(&mut b, &mut a, &mut pair.a.model);
        }
        if round >= 100 {
            counted += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
        frames = [(a.bytes, a.ends), (b.bytes, b.ends)];
        assert_eq!(pair.a.poll_all(&mut cq_a).len(), 3, "round {round}");
        assert_eq!(pair.b.poll_all(&mut cq_b).len(), 1, "round {round}");
    }
    assert_eq!(counted, 0, "allocations in 100 rounds of three messages");
}
