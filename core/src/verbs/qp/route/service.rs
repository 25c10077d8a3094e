//! The type of a QP as a type: what it can post is decided when the code is compiled.

use core::fmt::Debug;

use crate::types::qp::QpKind;

mod sealed {
    pub trait Sealed {}
}

/// A transport service: [`Rc`], [`Uc`], [`Ud`], [`Gsi`], one end of an extended reliable connection, [`XrcSend`] or
/// [`XrcRecv`], or none: [`RawPacket`].
pub trait QpType: sealed::Sealed + Debug + 'static {
    /// The same as a value.
    const KIND: QpKind;
    /// `true` if there is one peer, fixed by modify.
    const CONNECTED: bool;
    /// `true` if READ, atomics and remote invalidation exist.
    const RELIABLE: bool;
    /// `true` if work requests name the SRQ that they are for.
    #[doc(hidden)]
    const XRC: bool = Self::KIND.is_xrc();
    /// `true` if work requests name the target that they are for.
    #[doc(hidden)]
    const DYNAMIC: bool = matches!(Self::KIND, QpKind::Dci);
    /// `true` if work requests name the QP that they are for.
    #[doc(hidden)]
    const DATAGRAM: bool = matches!(Self::KIND, QpKind::Ud | QpKind::Gsi);
    /// Bytes of the segments by which each work request names its receiver: those of a [`Route`](crate::qp::Route).
    #[doc(hidden)]
    const ROUTE: usize = match Self::KIND {
        QpKind::XrcSend | QpKind::XrcRecv => 16,
        QpKind::Ud | QpKind::Gsi | QpKind::Dci => 48,
        _ => 0,
    };
    /// `true` if work requests are whole frames.
    #[doc(hidden)]
    const PACKET: bool = matches!(Self::KIND, QpKind::RawPacket);
}

/// A transport of connections, each of which has one peer. Work requests of XRC name an SRQ there, and those of DC the target
/// that they connect to.
pub trait OnePeer: QpType {}
/// The same with acknowledgements: READ and atomics.
pub trait OneReliablePeer: OnePeer {}
/// A transport with one peer, and the same queue there for everything.
pub trait Connected: OnePeer {}
/// The same with acknowledgements: READ and atomics.
pub trait Reliable: Connected + OneReliablePeer {}
/// A transport whose work requests each name their destination.
pub trait Datagram: QpType {}

macro_rules! kinds {
    ($($(#[$meta:meta])* $Name:ident: $connected:literal, $reliable:literal;)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub enum $Name {}
            impl sealed::Sealed for $Name {}
            impl QpType for $Name {
                const KIND: QpKind = QpKind::$Name;
                const CONNECTED: bool = $connected;
                const RELIABLE: bool = $reliable;
            }
        )*
    };
}

kinds! {
    /// Reliable connection.
    Rc: true, true;
    /// Unreliable connection.
    Uc: true, false;
    /// Unreliable datagram.
    Ud: false, false;
    /// The general services interface: QP 1 of the port, for management datagrams.
    Gsi: false, false;
    /// The initiator of an extended reliable connection (`IBV_QPT_XRC_SEND`), which only sends.
    XrcSend: true, true;
    /// Its target (`IBV_QPT_XRC_RECV`), which has no queues.
    XrcRecv: true, true;
    /// The initiator of dynamic connections (`IBV_QPT_DRIVER` with `MLX5DV_DCTYPE_DCI`), which only sends. Each work request
    /// names the target, a [`Dct`](crate::Dct), that it is for.
    Dci: true, true;
    /// Whole Ethernet frames (`IBV_QPT_RAW_PACKET`): made by
    /// [`EthernetDomain::create_raw_packet_qp`](crate::EthernetDomain::create_raw_packet_qp).
    RawPacket: false, false;
}

impl OnePeer for Rc {}
impl OnePeer for Uc {}
impl OnePeer for XrcSend {}
impl OnePeer for Dci {}
impl OneReliablePeer for Rc {}
impl OneReliablePeer for XrcSend {}
impl OneReliablePeer for Dci {}
impl Connected for Rc {}
impl Connected for Uc {}
impl Reliable for Rc {}
impl Datagram for Ud {}
impl Datagram for Gsi {}
