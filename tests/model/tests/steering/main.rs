//! Flow steering through the command interface: the tables that Linux's network driver builds, what is refused, and
//! anything at random.

#[path = "../common/mod.rs"]
mod common;

mod counters;
mod lab;
mod linux;
mod random;
mod refusals;
mod rewrites;
