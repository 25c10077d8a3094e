//! The values of a card's file, with where they come from.

/// Where a value of a card's file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Taken from a card of this kind.
    Recorded,
    /// A public document or a driver that runs on such cards states it.
    Public,
    /// Nothing is known: chosen for the model.
    Assumed,
    /// Cards have it, and the model does not offer it, because it does not do it.
    Withheld,
}

/// A value of a card's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The section: `function` or a capability group, with ` max` for its maximum.
    pub section: String,
    /// The field; for an image in hex, `hex`.
    pub field: String,
    /// The value as it is written; empty for an image in hex.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// Where exactly.
    pub document: String,
}
