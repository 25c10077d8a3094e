//! A ring in memory that another process writes as it likes, at both of its ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use connectx_model::link::ring::{Pop, RING_WORDS, Reader, Words, Writer};

use crate::input::{Input, STEPS};

/// Words of a ring before its frames.
const HEADER: usize = 64;
/// The longest frame.
const LONGEST: usize = 10 * 1024;

#[derive(Debug, Clone)]
struct Memory(Arc<Vec<AtomicU64>>);

impl Words for Memory {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Runs an input.
///
/// # Panics
/// If an end takes for a frame what is none.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let memory = Memory(Arc::new(
        (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect(),
    ));
    let mut writer = Writer::new(Box::new(memory.clone()));
    let mut reader = Reader::new(Box::new(memory.clone()));
    let mut frame = Vec::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        match step % 4 {
            0 => {
                let word = match step >> 6 {
                    0 => u64::MAX - u64::from(input.byte()),
                    1 => (RING_WORDS - HEADER) as u64 + u64::from(input.byte()),
                    _ => input.word().into(),
                };
                // The indexes and flags, or the beginning of the frames.
                let at = match step >> 2 & 7 {
                    index @ 0..4 => usize::from(index) * 16,
                    _ => HEADER + usize::from(input.word()),
                };
                memory.0[at].store(word, Ordering::SeqCst);
            }
            1 => {
                let len = usize::from(input.word()) % LONGEST + 1;
                for _ in 0..=step >> 2 {
                    if writer.push(&vec![step; len]).is_err() {
                        return;
                    }
                }
            }
            2 => {
                for _ in 0..=step >> 2 {
                    match reader.pop(&mut frame) {
                        Ok(Pop::Frame { .. }) => assert!((1..=LONGEST).contains(&frame.len())),
                        Ok(Pop::Empty) => break,
                        Err(_) => return,
                    }
                }
            }
            _ => {
                reader.doze();
                let _ = (writer.is_congested(), reader.has_more());
            }
        }
    }
}
