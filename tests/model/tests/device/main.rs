//! The model as a program meets it: commands, queues, cards, and what drivers of others do.

#[path = "../common/mod.rs"]
mod common;

mod blue_flame;
mod cards;
mod commands;
mod decode;
mod details;
mod devx;
mod dpdk;
mod fuzz;
mod ipxe;
mod keys;
mod lifecycle;
mod pci;
mod port;
mod published;
mod quirks;
mod replay;
mod stock_driver;
mod strict;
mod tolerance;
mod traffic;
mod virtual_function;
