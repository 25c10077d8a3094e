//! RoCE: packets, and the transport of RC, UC, UD and GSI queue pairs.
//!
//! Sans-I/O: frames, doorbells and time go in, frames and completions come out through [`env::Env`].

pub mod codes;
pub mod env;
pub mod headers;
pub mod opcode;
pub mod packet;
pub mod psn;
