//! Sleeping for interrupts: no wake-up is lost, whenever what is waited for comes, and who waits for nothing sleeps.
//!
//! The driver's side of every race is a sequence of calls of the platform. So what is waited for is made to come at the
//! first of them, then at the second, and so on until the sleeper is asleep; each time it has to wake at once, while its
//! deadline, and the next look at the device's health, are far away.

mod idle;
mod races;
mod support;
