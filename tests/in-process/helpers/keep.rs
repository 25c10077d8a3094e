//! Values that tests borrow from one another for `'static`, freed when the test's thread ends.
//!
//! A manager borrows its device and its storage, and the device its own; tests make them in one function and use them in
//! another. Leaked, they would hide what the driver leaks (`cargo rig sanitizers`).

// UNSAFETY: lends for `'static` what it frees one day.
#![expect(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;

thread_local!(static KEPT: Kept = const { Kept(RefCell::new(Vec::new())) });

struct Kept(RefCell<Vec<*mut dyn Any>>);

impl Drop for Kept {
    fn drop(&mut self) {
        // The last first: it may borrow those before.
        while let Some(value) = self.0.get_mut().pop() {
            // SAFETY: from `keep`, once. The function of the test has returned, and with it went its variables and the
            // threads that it joined; values that were kept later, and may borrow this one, are gone.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// Keeps a value until this thread ends. A thread that a test starts must not keep what others borrow, and must be joined
/// (not only awaited by its scope) if it keeps anything.
pub(crate) fn keep<T: 'static>(value: T) -> &'static mut T {
    let value = Box::into_raw(Box::new(value));
    KEPT.with(|kept| kept.0.borrow_mut().push(value));
    // SAFETY: just allocated, and freed when the thread has ended: what this program's tests borrow they use before, in
    // their functions and in threads that these join.
    unsafe { &mut *value }
}
