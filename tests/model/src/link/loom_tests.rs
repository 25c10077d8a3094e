//! The ends of a ring that sleep and wake each other, in every order of two threads that are interrupted at most three times
//! (`cargo rig loom`). A wake-up that is lost is a deadlock, which loom reports.

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::ring::{Pop, Push, RING_WORDS, Reader, Words, Writer};

#[derive(Debug)]
struct Plain(Vec<AtomicU64>);

impl Words for Arc<Plain> {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// The socket between the ends: a wake-up stays until it is waited for.
#[derive(Debug)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(false), Condvar::new()))
    }

    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn ring() -> (Writer, Reader) {
    let memory = Arc::new(Plain((0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()));
    (
        Writer::new(Box::new(memory.clone())),
        Reader::new(Box::new(memory)),
    )
}

/// Writes frames of two words each, of which the ring holds two; before each of them, `waits` may wait at the bell.
fn exchange(count: u8, waits: fn(&mut Writer, &Bell)) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let (mut writer, mut reader) = ring();
        let (frames, room) = (Bell::new(), Bell::new());
        let (to_reader, of_writer) = (frames.clone(), room.clone());
        let writes = thread::spawn(move || {
            for number in 0..count {
                loop {
                    waits(&mut writer, &of_writer);
                    match writer.push(&[number; 8]).unwrap() {
                        Push::Full => of_writer.wait(),
                        Push::Wake => break to_reader.ring(),
                        Push::Written => break,
                    }
                }
            }
        });
        let mut frame = Vec::new();
        for number in 0..count {
            loop {
                match reader.pop(&mut frame).unwrap() {
                    Pop::Frame { wake } => {
                        if wake {
                            room.ring();
                        }
                        break;
                    }
                    Pop::Empty => {
                        reader.doze();
                        if !reader.has_more() {
                            frames.wait();
                        }
                    }
                }
            }
            assert_eq!(frame, [number; 8]);
        }
        writes.join().unwrap();
    });
}

#[test]
fn a_reader_that_sleeps_is_woken_and_a_writer_that_waits_for_room() {
    exchange(3, |_, _| ());
}

#[test]
fn a_writer_that_pauses_is_woken() {
    exchange(3, |writer, bell| {
        while writer.is_congested().unwrap() {
            bell.wait();
        }
    });
}
