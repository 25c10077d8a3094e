//! RoCE: packets, and the transport of RC, UC, UD and GSI queue pairs.
//!
//! Sans-I/O: frames, doorbells and time go in, frames and completions come out through [`env::Env`].

pub mod codes;
mod datagram;
pub mod env;
pub mod headers;
mod memory;
pub mod opcode;
pub mod packet;
pub mod psn;
mod requester;
mod responder;
pub mod transport;
