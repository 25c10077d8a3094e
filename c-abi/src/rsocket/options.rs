//! The options of an rsocket.

use std::ffi::c_int;
use std::time::Duration;

use bareverbs_node::cm::mad::sa::PathRecord;
use bareverbs_node::cm::rdma::IdOption;

/// The largest message that is sent inline.
pub(super) const MOST_INLINE: u16 = 512;

/// The sizes of a stream's queues and rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) sends: u16,
    pub(super) receives: u16,
    pub(super) inline: u16,
    pub(super) mappings: u16,
    pub(super) receive_ring: u32,
    pub(super) staging: u32,
}

/// The options that a program sets.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    /// The time that closing waits, if it was said.
    pub(super) linger: Option<Duration>,
    pub(super) reuse_addr: bool,
    pub(super) v6_only: bool,
    pub(super) keep_alive: bool,
    /// After how many seconds of silence the other end is asked for a sign of life.
    pub(super) keep_idle: c_int,
    pub(super) tos: Option<u8>,
    /// The path to the other end on InfiniBand, if the program has it from elsewhere.
    pub(super) path: Option<PathRecord>,
    /// The time that calls wait that receive and accept, and those that send and connect; for ever if it is not set.
    pub(super) receive_timeout: Option<Duration>,
    pub(super) send_timeout: Option<Duration>,
    pub(super) no_delay: bool,
    pub(super) oob_inline: bool,
    /// It stands for a socket of TCP or UDP in a program that knows no rsockets, and answers as those do where librdmacm's
    /// rsockets answer otherwise.
    pub(super) is_ordinary: bool,
}

impl Options {
    /// The defaults of librdmacm.
    pub(super) const DEFAULT: Self = Self {
        sizes: Sizes {
            sends: 384,
            receives: 384,
            inline: 64,
            mappings: 0,
            receive_ring: 128 << 10,
            staging: 128 << 10,
        },
        linger: None,
        reuse_addr: false,
        v6_only: false,
        keep_alive: false,
        keep_idle: 7200,
        tos: None,
        path: None,
        receive_timeout: None,
        send_timeout: None,
        no_delay: false,
        oob_inline: false,
        is_ordinary: false,
    };

    /// Gives those that are options of the connection manager.
    pub(super) fn of_id(&self) -> impl Iterator<Item = IdOption> {
        let reuse = self.reuse_addr.then_some(IdOption::ReuseAddr(true));
        let only = self.v6_only.then_some(IdOption::AfOnly(true));
        [reuse, only, self.tos.map(IdOption::Tos)]
            .into_iter()
            .flatten()
    }
}
