//! The atomics that poster and poller share. `loom` replaces them by its own, to try every order of two threads
//! (`loom_tests.rs`).

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// A constructor that is constant, except with loom's atomics, which are not made by constant functions.
macro_rules! constant {
    ($(#[$meta:meta])* $vis:vis const fn $name:ident($($argument:ident: $Type:ty),*) -> $Result:ty $body:block) => {
        $(#[$meta])*
        #[cfg(not(all(test, loom)))]
        $vis const fn $name($($argument: $Type),*) -> $Result $body

        $(#[$meta])*
        #[cfg(all(test, loom))]
        $vis fn $name($($argument: $Type),*) -> $Result $body
    };
}
pub(crate) use constant;
