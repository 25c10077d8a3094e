//! The language of mlx5 firmware: what a driver of an NVIDIA/Mellanox ConnectX-4 to -7 or BlueField writes to the device
//! and reads from it, as types. It serves both sides, driver and device model, and depends on neither.
//!
//! No allocator, no `unsafe`, no state: bytes in, bytes out.
//!
//! # What is covered
//!
//! | module | content |
//! |---|---|
//! | [`init_segment`], [`health`] | the registers at the start of BAR 0, and the health buffer in words |
//! | [`cmdq`], [`status`] | command queue entry, mailbox blocks, signatures; delivery status and command status |
//! | [`command`], [`opcode`] | what commands have in common |
//! | [`hca`], [`pages`], [`caps`], [`register`] | life cycle, memory for the firmware, capabilities, ACCESS_REG |
//! | [`uar`], [`domain`], [`mkey`], [`eq`], [`cq`], [`qp`], [`srq`], [`counter`] | objects: their commands and contexts |
//! | [`tis`], [`sq`], [`tir`], [`rq`], [`flow`] | Ethernet queues, and the flow tables that steer packets to them |
//! | [`roce`], [`vport`], [`mad`] | GID table, virtual port, management datagrams and multicast |
//! | [`doorbell`], [`event`], [`cqe`], [`wqe`], [`word`] | UAR and doorbell records, EQEs, CQEs, WQE segments |
//! | [`numbers`], [`values`] | object numbers and keys; what the numbers in small fields mean |
//! | [`registry`] | all structures and commands as data |
//! | [`dump`], [`decode`] | traces in the form of `mlx5_core`, and commands taken apart for people |
//!
//! 111 commands, from ENABLE_HCA through every queue pair transition back to DISABLE_HCA; [`opcode::Opcode::ALL`] lists
//! them. The embedded switch is not among them.
//!
//! # How to read a layout
//!
//! ```text
//! pub struct Cqc: "cqc", 0x40 {                                   name in mlx5_ifc.h, size in bytes
//!     bits cqe_sz, set_cqe_sz: u8 @ 0x00 [23:21];                 getter, setter, type; dword, bits in it
//!     flag oi, set_oi @ 0x00 [17];
//!     bits dbr_addr, set_dbr_addr: u64 @ 0x38 [63:0];
//! }
//! part cq_context, cq_context_mut: Cqc @ 0x10;                    a structure inside another
//! tail pas: 64 @ 0x110;                                           what follows, in elements of so many bits
//! ```
//!
//! Commands are defined by `commands!`, which adds the header (`opcode`, `uid`, `op_mod`; `status`, `syndrome`):
//!
//! ```text
//! input CreateCqIn of CreateCq: "create_cq_in", 0x110, uid {      with a variant of Opcode; `uid` if the header has that field
//! output CreateCqOut: "create_cq_out", 0x10 {                     left out if the answer is status and syndrome only
//! ```
//!
//! Positions are those of the manual: byte offset of a big-endian dword, then bits, 31 the most significant. Names are
//! those of `mlx5_ifc.h`, letter for letter, and every one of them is compared with that header, as Debian ships it, by
//! `cargo test` (see `tests/layouts.rs` and `data/mlx5_ifc.tsv`); `cargo rig layouts` makes the table again.
//!
//! # How to read a word
//!
//! What driver and device exchange on the data path is described as words of 8, 32 or 64 bits ([`word`]), which are
//! integers with fields, as each store and load is one of them:
//!
//! ```text
//! pub struct ControlWord(u64): "struct mlx5_wqe_ctrl_seg" @ 0x00 {    structure in qp.h, byte in it
//!     u8 opcode, set_opcode: 39, 32 => opmod_idx_opcode;              type, getter, setter; bits => member
//! }
//! ```
//!
//! Those structures have no counterpart in `mlx5_ifc.h`. Every field is compared with the members of the C structures of
//! `device.h` and `qp.h`, and parts of members with what the vendor's own functions write and read (see
//! `tests/words.rs` and `data/mlx5_functions.tsv`); `cargo rig layouts` makes that table again, too.
//!
//! # How structures are used
//!
//! A structure is a byte array with accessors, so it can be laid over any buffer:
//!
//! ```
//! use bareverbs_firmware_cmds::command::Command;
//! use bareverbs_firmware_cmds::cq::{CreateCqIn, CreateCqOut};
//! use bareverbs_firmware_cmds::status::Status;
//! use zerocopy::FromBytes;
//!
//! let mut input = CreateCqIn::new();
//! input.cq_context_mut().set_log_cq_size(8).set_uar_page(3).set_c_eqn_or_apu_element(5);
//! assert_eq!(input.0[..2], [0x04, 0x00]);
//! assert_eq!(CreateCqIn::OPCODE.to_string(), "CREATE_CQ(0x400)");
//!
//! // The device's answers are checked before they are used.
//! let answer = [0x08, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0];
//! let output = CreateCqOut::ref_from_bytes(&answer).unwrap();
//! assert_eq!(Status::from_number(output.status()), Status::LimitExceeded);
//! assert_eq!(output.syndrome(), 0x123456);
//! ```
//!
//! What lies behind the fixed part (page lists, translation lists, register data, capability groups) is the *tail*; it
//! travels beside the structure.
//!
//! # Bug reports
//!
//! ```text
//! dmesg | cargo run -p connectx-model --example decode
//! ```
//!
//! shows the commands of the Linux driver (booted with `dyndbg="module mlx5_core +p"`), or our own, field by field.
#![no_std]
#![forbid(unsafe_code)]

pub mod caps;
pub mod cmdq;
pub mod command;
pub mod congestion;
pub mod counter;
pub mod cq;
pub mod cqe;
pub mod dct;
pub mod decode;
pub mod domain;
pub mod doorbell;
pub mod dump;
pub mod eq;
pub mod event;
pub mod flow;
#[cfg(test)]
mod golden;
pub mod hca;
pub mod health;
pub mod init_segment;
pub mod layout;
pub mod mad;
pub mod memic;
pub mod mkey;
mod numbered;
pub mod numbers;
pub mod opcode;
pub mod pages;
pub mod qp;
pub mod register;
pub mod registry;
pub mod roce;
pub mod rq;
pub mod sq;
pub mod srq;
pub mod status;
pub mod tir;
pub mod tis;
pub mod uar;
pub mod umem;
pub mod values;
pub mod vport;
pub mod word;
pub mod wqe;
