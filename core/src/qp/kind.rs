//! The type of a QP as a type: what it can post is decided when the code is compiled.

use core::fmt::Debug;

use crate::qp::caps::QpKind;

mod sealed {
    pub trait Sealed {}
}

/// A transport service: [`Rc`], [`Uc`], [`Ud`] or [`Gsi`].
pub trait QpType: sealed::Sealed + Debug + 'static {
    /// The same as a value.
    const KIND: QpKind;
    /// Whether there is one peer, fixed by modify.
    const CONNECTED: bool;
    /// Whether READ, atomics and remote invalidation exist.
    const RELIABLE: bool;
    /// `qpc.st`.
    #[doc(hidden)]
    const SERVICE: u8;
}

/// A transport with one peer.
pub trait Connected: QpType {}
/// A transport with acknowledgements: READ and atomics.
pub trait Reliable: Connected {}
/// A transport whose work requests each name their destination.
pub trait Datagram: QpType {}

macro_rules! kinds {
    ($($(#[$meta:meta])* $Name:ident: $service:literal, $connected:literal, $reliable:literal;)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub enum $Name {}
            impl sealed::Sealed for $Name {}
            impl QpType for $Name {
                const KIND: QpKind = QpKind::$Name;
                const CONNECTED: bool = $connected;
                const RELIABLE: bool = $reliable;
                const SERVICE: u8 = $service;
            }
        )*
    };
}

kinds! {
    /// Reliable connection.
    Rc: 0, true, true;
    /// Unreliable connection.
    Uc: 1, true, false;
    /// Unreliable datagram.
    Ud: 2, false, false;
    /// The general services interface: QP 1 of the port, for management datagrams.
    Gsi: 8, false, false;
}

impl Connected for Rc {}
impl Connected for Uc {}
impl Reliable for Rc {}
impl Datagram for Ud {}
impl Datagram for Gsi {}
