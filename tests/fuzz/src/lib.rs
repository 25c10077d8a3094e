//! What the fuzz targets do with their bytes.
//!
//! An input is a program: each step is a byte that says what to do, and the bytes that it needs. What runs out reads as
//! zeros, so that every input means something, and a part of one means nearly the same as before.

pub mod frame;
pub mod input;
pub mod mad;
pub mod message;
mod port;
