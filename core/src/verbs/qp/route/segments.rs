//! The segments before the data of a work request: the route to its receiver, and those of the operation behind it.

use crate::memory::send_ring::Wqe;
use crate::memory::slots::CLOSES;
use crate::verbs::qp::queue::wr::{Destination, Remote};
use crate::verbs::qp::route::service::{Datagram, QpType, RawPacket, Rc, Uc};
use bareverbs_firmware_cmds::wqe::{
    AtomicCompareWord, AtomicSwapAddWord, Opcode, QKeyWord, READ_WQE, RemoteAddressWord,
    RemoteKeyWord, SEGMENT_UNIT,
};

/// The part of a work request that names its receiver, in segments directly behind the control segment. A connection's
/// requests have none: `()`.
pub trait Route {
    /// Bytes of the segments.
    #[doc(hidden)]
    const SIZE: usize;
    /// Writes them.
    #[doc(hidden)]
    fn put(self, wqe: Wqe<'_>);
}

/// A [`Route`] of the work requests of this type of QP.
pub trait RouteOf<T: QpType>: Route {}

impl Route for () {
    const SIZE: usize = 0;

    #[inline(always)]
    fn put(self, _: Wqe<'_>) {}
}

impl RouteOf<Rc> for () {}
impl RouteOf<Uc> for () {}
impl RouteOf<RawPacket> for () {}

impl Route for Destination<'_> {
    const SIZE: usize = 48;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        let path = self.ah.path.to(self.remote_qpn);
        wqe.put(16, QKeyWord::new(self.remote_qkey), path);
        // The address vector's latter part is kept in memory order.
        wqe.put_words::<32, 4>(self.ah.rest);
    }
}

impl<T: Datagram> RouteOf<T> for Destination<'_> {}

/// The operations, as parameters of the types below: so no two share code that would have to look its opcode up.
pub(in crate::verbs::qp) const SEND: u8 = Opcode::Send as u8;
pub(in crate::verbs::qp) const SEND_IMM: u8 = Opcode::SendImmediate as u8;
pub(in crate::verbs::qp) const SEND_INV: u8 = Opcode::SendInvalidate as u8;
pub(in crate::verbs::qp) const WRITE: u8 = Opcode::RdmaWrite as u8;
pub(in crate::verbs::qp) const WRITE_IMM: u8 = Opcode::RdmaWriteImmediate as u8;
pub(in crate::verbs::qp) const READ: u8 = Opcode::RdmaRead as u8;
pub(in crate::verbs::qp) const COMPARE_SWAP: u8 = Opcode::AtomicCompareSwap as u8;
pub(in crate::verbs::qp) const FETCH_ADD: u8 = Opcode::AtomicFetchAdd as u8;
pub(in crate::verbs::qp) const UMR: u8 = Opcode::Umr as u8;

/// All segments before the data of a work request.
pub(in crate::verbs::qp) trait Segments {
    /// The operation.
    const OPCODE: u8;
    /// Bytes before the data, with the control segment.
    const SIZE: usize;
    /// Entries that the device takes in a request of this operation, where a queue may have more: those of a READ
    /// ([`READ_WQE`]).
    const MAX_SGE: u8 = match Self::OPCODE {
        READ => ((READ_WQE - Self::SIZE) / SEGMENT_UNIT) as u8,
        _ => u8::MAX,
    };
    /// The mark in the ring's record of it.
    const MARK: u32 = 0;
    /// Writes what is behind the control segment.
    fn put(self, wqe: Wqe<'_>);
}

/// A UMR that closes a window has nothing before the changes.
pub(in crate::verbs::qp) struct Closing;

impl Segments for Closing {
    const OPCODE: u8 = UMR;
    const SIZE: usize = SEGMENT_UNIT;
    const MARK: u32 = CLOSES;

    fn put(self, _: Wqe<'_>) {}
}

/// A message: the route alone.
pub(in crate::verbs::qp) struct Message<const OPCODE: u8, R>(pub(in crate::verbs::qp) R);

impl<const OPCODE: u8, R: Route> Segments for Message<OPCODE, R> {
    const OPCODE: u8 = OPCODE;
    const SIZE: usize = SEGMENT_UNIT + R::SIZE;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        self.0.put(wqe);
    }
}

/// RDMA: the route, and the peer's memory.
pub(in crate::verbs::qp) struct Rdma<const OPCODE: u8, R>(
    pub(in crate::verbs::qp) R,
    pub(in crate::verbs::qp) Remote,
);

impl<const OPCODE: u8, R: Route> Segments for Rdma<OPCODE, R> {
    const OPCODE: u8 = OPCODE;
    const SIZE: usize = 2 * SEGMENT_UNIT + R::SIZE;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        self.0.put(wqe);
        let (addr, key) = (self.1.addr, RemoteKeyWord::new(self.1.rkey));
        wqe.put(SEGMENT_UNIT + R::SIZE, RemoteAddressWord(addr), key);
    }
}

/// An atomic operation: the route, the peer's memory, and the operands.
pub(in crate::verbs::qp) struct Atomic<const OPCODE: u8, R> {
    pub(in crate::verbs::qp) rdma: Rdma<OPCODE, R>,
    pub(in crate::verbs::qp) swap_or_add: u64,
    pub(in crate::verbs::qp) compare: u64,
}

impl<const OPCODE: u8, R: Route> Segments for Atomic<OPCODE, R> {
    const OPCODE: u8 = OPCODE;
    const SIZE: usize = 3 * SEGMENT_UNIT + R::SIZE;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        self.rdma.put(wqe);
        let operand = AtomicSwapAddWord(self.swap_or_add);
        wqe.put(
            2 * SEGMENT_UNIT + R::SIZE,
            operand,
            AtomicCompareWord(self.compare),
        );
    }
}
