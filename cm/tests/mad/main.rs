//! The codec of messages.

mod fields;
mod linux;
