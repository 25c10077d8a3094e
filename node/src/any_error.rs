//! Short programs return this error.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

/// Any error, shown in the words of its `Display` also where `Debug` is asked for: by a `main` that returns it, by `unwrap`.
///
/// `?` makes it of every error, and `into` also of a text. It is no [`Error`] itself, so that those can be told apart;
/// it dereferences to the one that it was made of.
pub struct AnyError(Box<dyn Error + Send + Sync>);

impl AnyError {
    /// The error that it was made of.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Error + Send + Sync> {
        self.0
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for AnyError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Deref for AnyError {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
