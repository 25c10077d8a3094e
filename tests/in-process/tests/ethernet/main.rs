//! Ethernet queues between two cards: which frames arrive, what happens to those that do not, and what is left of it all.

#[path = "../verbs/lab.rs"]
#[allow(dead_code, reason = "verbs use more of it")]
mod lab;
#[path = "../verbs/seam.rs"]
mod seam;

mod compressed;
mod compressed_strides;
mod errors;
mod forged;
mod forged_messages;
mod frames;
mod limits;
mod offloads;
mod packets;
mod queues;
mod raw;
mod raw_flows;
mod raw_local;
mod roce;
mod rules;
mod spread;
mod stack;
mod stacks;
mod strides;
mod support;
mod tunnels;
