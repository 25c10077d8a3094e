//! The RDMA CM over driver and model, in virtual time: between two managers on one cable ([`pair`]), against peers made by
//! hand, and on InfiniBand. (`cm_hundred_thousand` stands alone, as it is also run with optimization.)

mod complaints;
mod connections;
mod datagrams;
mod dc;
mod ece;
mod every_command;
mod extended;
mod faults;
mod frames;
mod infiniband;
#[path = "../../helpers/keep.rs"]
mod keep;
mod keep_alive;
mod lists;
#[path = "../../helpers/managed.rs"]
mod managed;
mod modes;
mod multicast;
mod neighbours;
mod options;
mod pair;
mod peer;
mod port_space_ib;
mod random;
mod recycling;
mod replay;
mod slow_firmware;
mod slow_kinds;
mod srq;
mod stale;
mod support;
mod tasks;
mod threads;
mod timers;
mod unknown_hosts;
mod unwinding;
mod xrc;
