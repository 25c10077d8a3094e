//! The faults that the sanitizers must find, and those that they must not. The rig compiles it with each sanitizer; the
//! argument names the fault.

use std::hint::black_box;

static mut WORD: u64 = 0;

/// A write with no synchronization.
#[inline(never)]
fn driver_write() {
    unsafe { (&raw mut WORD).write_volatile(black_box(1)) };
}

/// A write of the model's, by its name.
#[inline]
unsafe fn model_dma_write(to: *mut u64) {
    unsafe { to.write_volatile(black_box(2)) };
}

fn model() {
    unsafe { model_dma_write(&raw mut WORD) };
}

fn both(one: fn(), other: fn()) {
    let threads = [std::thread::spawn(one), std::thread::spawn(other)];
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// Memory that nothing points to any more.
#[inline(never)]
fn leak() {
    for _ in 0..16 {
        black_box(vec![1_u8; 4000].leak());
    }
}

#[inline(never)]
fn use_after_free() {
    let memory = Box::new(black_box(7_u64));
    let at = black_box(&raw const *memory);
    drop(memory);
    black_box(unsafe { at.read_volatile() });
}

fn main() {
    let fault = std::env::args().nth(1);
    match fault.as_deref() {
        Some("none") => {}
        Some("race") => both(driver_write, driver_write),
        Some("dma") => both(driver_write, model),
        Some("leak") => leak(),
        Some("use-after-free") => use_after_free(),
        other => panic!("no such fault: {other:?}"),
    }
}
