//! Verbs over the wire between two cards: every service, what arrives, and what goes wrong.

mod alternate_paths;
mod atomics;
mod clocks;
mod completion_queues;
mod compressed;
mod counters;
mod cqe_scatter;
mod damage;
mod datagrams;
mod dc;
mod dc_open;
mod dc_priorities;
mod dc_streams;
mod device_memory;
mod endpoints;
mod errors;
mod indirect_keys;
mod lab;
#[path = "../../helpers/managed.rs"]
mod managed;
mod memory_keys;
mod memory_windows;
mod pending;
mod queries_and_limits;
mod rc_traffic;
mod resources;
mod seam;
mod shared_receive_queues;
mod special_regions;
mod threads;
mod uc_traffic;
mod xrc;
