//! Bring-up, run time and teardown of the control path against the device model, with everything that can go wrong.

mod cards;
mod device_errors;
mod events;
mod failures;
mod firmware_pages;
mod gid_table;
mod manager;
mod memory;
mod opening;
mod recorder;
mod settings;
mod support;
mod threads;
mod vanishing;
mod virtual_function;
