//! Waiting for interrupts: no wake-up is lost, at whatever moment the event comes, and a waiter without an event
//! sleeps.
//!
//! The driver's side of every race is a sequence of calls of the platform. So the event is made to come at the first of
//! them, then at the second, and so on until the waiter sleeps; each time it has to wake at once, while its deadline,
//! and the next check of the device's health, are far away.

mod idle;
#[path = "../../helpers/keep.rs"]
mod keep;
mod races;
mod support;
