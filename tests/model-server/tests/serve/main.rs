//! The server from outside: a process, with clients at its sockets.

mod card;
mod driver;
mod ending;
mod lab;
mod malformed;
mod protocol;
mod raw;
mod support;
mod wires;
