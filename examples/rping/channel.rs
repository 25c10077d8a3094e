//! The messages of a ping, which other examples exchange as well.

pub(crate) use bareverbs_examples::channel::{Channel, ChannelError, Received};
