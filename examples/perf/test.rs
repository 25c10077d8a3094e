//! The tests: an operation, and the quantity that is measured of it.

use std::fmt::{self, Display};
use std::str::FromStr;

use bareverbs_command_line::Named;

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND.
    Send,
    /// ATOMIC fetch and add.
    FetchAdd,
    /// ATOMIC compare and swap.
    CmpSwap,
}

/// The quantity that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bandwidth and message rate, with DEPTH messages in flight.
    Bw,
    /// Latency of one message alone: half of what there and back take, or until the answer of a READ or an atomic.
    Lat,
    /// Latency under load: from the call that posts a message to its completion, with DEPTH of them in flight.
    Load,
}

/// The parameters of one measurement, the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) verb: Verb,
    pub(crate) kind: Kind,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages in flight.
    pub(crate) depth: u32,
    /// The server does the same the other way at the same time.
    pub(crate) both_ways: bool,
}

/// The largest message.
pub(crate) const MAX_SIZE: u32 = 1 << 23;
/// The most messages in flight.
pub(crate) const MAX_DEPTH: u32 = 1024;
/// The bytes that atomics work on.
pub(crate) const ATOMIC_SIZE: u32 = 8;

// The other end knows them by their places in these tables.
impl Named for Verb {
    const ALL: &'static [(&'static str, Self)] = &[
        ("write", Self::Write),
        ("read", Self::Read),
        ("send", Self::Send),
        ("fetch_add", Self::FetchAdd),
        ("cmp_swap", Self::CmpSwap),
    ];
}

impl Named for Kind {
    const ALL: &'static [(&'static str, Self)] =
        &[("bw", Self::Bw), ("lat", Self::Lat), ("load", Self::Load)];
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Verb {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// `true` if the other end answers, so that there is no need for it to send something back.
    pub(crate) fn is_answered(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}

impl Test {
    pub(crate) fn name(&self) -> String {
        format!("{}_{}", self.verb.name(), self.kind.name())
    }

    /// Checks that a server that prepared for messages of up to `largest` bytes, `deepest` in flight, can take part.
    pub(crate) fn check(&self, largest: u32, deepest: u32) -> Result<(), String> {
        let Self {
            verb, size, depth, ..
        } = *self;
        if size == 0 || size > largest || verb.is_atomic() && size != ATOMIC_SIZE {
            return Err(format!("{}: {size} bytes", self.name()));
        }
        if depth == 0 || depth > deepest || self.kind == Kind::Lat && depth != 1 {
            return Err(format!("{}: {depth} messages in flight", self.name()));
        }
        if self.both_ways && self.kind != Kind::Bw {
            return Err(format!("{}: both ways", self.name()));
        }
        Ok(())
    }
}
