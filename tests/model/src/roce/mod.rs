//! RoCE: packets, and the transport of RC, UC, UD and GSI queue pairs.
//!
//! Sans-I/O: frames, doorbells and time go in, frames and completions come out through [`env::Env`].

pub mod env;
