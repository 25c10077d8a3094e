//! What a model reaches of the machine it is in.

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

/// Frames back to back in one buffer, so that sending one allocates nothing.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(&start, &end)| &self.bytes[start..end])
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
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
        self.outbox.bytes.extend_from_slice(frame);
        self.outbox.ends.push(self.outbox.bytes.len());
    }
}

/// The interrupt lines of a function, and what each thread has seen of them.
pub(crate) struct Interrupts {
    /// How often each vector was raised.
    pub(crate) raised: Vec<u64>,
    /// How often the driver woke its threads.
    pub(crate) wakes: u64,
    /// The same as each thread knew it after its last wait. A thread that never waited has seen nothing.
    seen: HashMap<ThreadId, (Vec<u64>, u64)>,
    /// One was raised that was not reported to the waiters yet.
    pub(crate) unreported: bool,
    /// How often a thread went to wait.
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

    /// Whether one of these vectors was raised, or the threads were woken, since this thread asked last.
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
