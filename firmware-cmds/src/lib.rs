//! The language of mlx5 firmware.
#![no_std]
#![forbid(unsafe_code)]
pub mod caps;
pub mod cmdq;
pub mod command;
pub mod counter;
pub mod cq;
pub mod cqe;
pub mod decode;
pub mod domain;
pub mod doorbell;
pub mod dump;
pub mod eq;
pub mod event;
#[cfg(test)]
mod golden;
pub mod hca;
pub mod init_segment;
pub mod layout;
pub mod mad;
pub mod mkey;
pub mod numbers;
pub mod opcode;
pub mod pages;
pub mod qp;
pub mod register;
pub mod registry;
pub mod roce;
pub mod srq;
pub mod status;
pub mod uar;
pub mod values;
pub mod vport;
mod wire;
pub mod wqe;
