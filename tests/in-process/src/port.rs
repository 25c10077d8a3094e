//! The machine around a model, as the model reaches it.

use crate::memory::Memory;
use bareverbs_core::VectorSet;
use connectx_model::host::{Host, IommuFault};
use std::collections::HashMap;
use std::thread::ThreadId;

/// The model's way out: memory, interrupt lines, and frames that wait for the cable.
pub(crate) struct Port {
    pub(crate) memory: Memory,
    pub(crate) interrupts: Interrupts,
    pub(crate) outbox: Outbox,
}

/// Frames in buffers that are used again, so that sending one allocates nothing.
#[derive(Default)]
pub(crate) struct Outbox {
    buffers: Vec<Vec<u8>>,
    count: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The buffer of the next frame.
    fn next(&mut self) -> &mut Vec<u8> {
        if self.buffers.len() == self.count {
            self.buffers.push(Vec::new());
        }
        self.count += 1;
        &mut self.buffers[self.count - 1]
    }

    /// Empties it. The buffers may be exchanged.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        let count = std::mem::take(&mut self.count);
        self.buffers[..count].iter_mut()
    }
}

impl Host for Port {
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        self.memory.read(iova, data)
    }

    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        self.memory.write(iova, data)
    }

    fn interrupt(&mut self, vector: u16) {
        if let Some(raised) = self.interrupts.raised.get_mut(usize::from(vector)) {
            *raised += 1;
            self.interrupts.unreported = true;
        }
    }

    fn transmit(&mut self, frame: &[u8]) {
        let buffer = self.outbox.next();
        buffer.clear();
        buffer.extend_from_slice(frame);
    }

    fn hand_over(&mut self, frame: &mut Vec<u8>) {
        std::mem::swap(self.outbox.next(), frame);
    }
}

/// The interrupt lines of a function, and what each thread has seen of them.
pub(crate) struct Interrupts {
    /// The number of times that each vector was raised.
    pub(crate) raised: Vec<u64>,
    /// The number of times that the driver woke its threads.
    pub(crate) wakes: u64,
    /// The same as each thread knew it after its last wait. A thread that never waited has seen nothing.
    seen: HashMap<ThreadId, (Vec<u64>, u64)>,
    /// One was raised that was not reported to the waiters yet.
    pub(crate) unreported: bool,
    /// The number of times that a thread went to wait.
    pub(crate) waits: u64,
}

impl Interrupts {
    pub(crate) fn new(vectors: usize) -> Self {
        Self {
            raised: vec![0; vectors],
            wakes: 0,
            seen: HashMap::new(),
            unreported: false,
            waits: 0,
        }
    }

    /// Returns `true` if one of these vectors was raised, or the threads were woken, since this thread asked last.
    pub(crate) fn take(&mut self, vectors: VectorSet) -> bool {
        let (seen, wakes) = self
            .seen
            .entry(std::thread::current().id())
            .or_insert_with(|| (vec![0; self.raised.len()], 0));
        let mut any = std::mem::replace(wakes, self.wakes) != self.wakes;
        for (vector, (seen, &raised)) in (0..).zip(seen.iter_mut().zip(&self.raised)) {
            if vectors.contains(vector) {
                any |= std::mem::replace(seen, raised) != raised;
            }
        }
        any
    }
}
