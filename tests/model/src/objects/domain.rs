//! Domains: protection domains, transport domains, XRC domains.

use crate::memory::pages::Place;

/// A domain: its users keep it from being freed.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) users: u32,
    pub(crate) place: Place,
}
