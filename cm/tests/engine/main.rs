//! The connection engine: two engines on a pipe in virtual time, and Linux at the other end.

#[path = "../common/mod.rs"]
mod common;

mod active;
mod alternate;
mod anything;
mod disconnect;
mod ece;
mod ending;
mod kernel_behaviours;
#[cfg(feature = "last-messages")]
mod last_messages;
mod limits;
mod loss;
mod passive;
mod sidr;
mod storm;
mod xrc;
