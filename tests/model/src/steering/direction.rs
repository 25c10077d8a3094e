//! The two kinds of tables.

/// Which frames a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Transmit,
}
