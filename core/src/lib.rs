//! The mlx5 driver: from a BAR and DMA memory to verbs.
#![no_std]
pub mod platform;
