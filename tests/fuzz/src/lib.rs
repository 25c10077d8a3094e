//! What the fuzz targets do with their bytes.
//!
//! An input is a program: each step is a byte that says what to do, and the bytes that it needs. What runs out reads as
//! zeros, so that every input means something, and a part of one means nearly the same as before.

pub mod frame;
mod hostile;
pub mod input;
pub mod ipoib;
pub mod mad;
pub mod mailbox;
pub mod message;
mod port;
pub mod protocols;
pub mod receive;
pub mod ring;
pub mod sa;
pub mod switch;
pub mod vfio;
pub mod words;

// The model's server is a program; these are its parts below the sockets.
#[path = "../../model-server/src/backend.rs"]
mod backend;
#[path = "../../model-server/src/fabric.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod fabric;
#[path = "../../model-server/src/memory.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod memory;
#[path = "../../model-server/src/shortened.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod shortened;
#[path = "../../model-server/src/world.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod world;
