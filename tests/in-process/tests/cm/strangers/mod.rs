//! A manager among hosts that it does not know, that make mistakes, or that mean harm.

mod addresses;
mod bench;
mod floods;
mod half_open;
mod mutations;
