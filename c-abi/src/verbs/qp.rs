//! Queue pairs: the object behind `struct ibv_qp`, with its queues behind a lock each.

// UNSAFETY: takes pointers to objects of C back, and divides a QP between three locks.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Mutex, TryLockError};

use bareverbs_node::verbs::qp::QueriedQp;
use bareverbs_node::verbs::{
    AhAttr, DynQp, Gid, ModifyError, QpAttr, QpAttrMask, QpState, QpType, Qpn, Rc, RecvQueue, Tirn,
    Uc, Ud, XrcSend,
};

use crate::abi::objects::ibv_qp;
use crate::abi::requests::{ibv_qp_ex, ibv_send_wr};
use crate::data::opened::Opened;
use crate::ethernet::raw_qp::RawQp;
use crate::ethernet::rss::RssQp;
use crate::process::acks::Acks;
use crate::process::data_lock::DataLock;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::{Hca, P};
use crate::verbs::moved::Moved;

/// `ibv_post_send`.
pub(crate) type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// A QP of any type.
pub(crate) enum AnyQp {
    Verbs(DynQp<'static, P>),
    Raw(RawQp),
    Rss(RssQp),
}

/// Does the same with a QP of any type.
macro_rules! any {
    ($qp:expr, $inner:ident => $call:expr) => {
        match $qp {
            AnyQp::Verbs($inner) => $call,
            AnyQp::Raw(RawQp { qp: $inner, .. }) => $call,
            AnyQp::Rss($inner) => $call,
        }
    };
}

impl AnyQp {
    pub(crate) fn qpn(&self) -> Qpn {
        any!(self, qp => qp.qpn())
    }

    fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> std::result::Result<(), ModifyError> {
        any!(self, qp => qp.modify(attr, mask))
    }

    fn query(&mut self) -> std::result::Result<QueriedQp, ModifyError> {
        any!(self, qp => qp.query())
    }

    pub(super) fn state(&self) -> QpState {
        any!(self, qp => qp.state())
    }

    /// The number of rules that send frames to it, and their destination.
    pub(crate) fn steered(&mut self) -> Result<(Tirn, &mut u32)> {
        match self {
            Self::Raw(raw) => Ok((raw.qp.target()?, &mut raw.rules)),
            Self::Rss(rss) => Ok((rss.target.number(), &mut rss.rules)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns `true` if rules send frames to it; then it cannot go.
    fn has_rules(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.rules != 0,
            Self::Rss(rss) => rss.rules != 0,
            _ => false,
        }
    }

    /// Its queues: first the send queue, which is of the QP's type.
    fn split(&mut self) -> (SendHalf, RecvHalf) {
        match self {
            Self::Verbs(qp) => {
                // Both come from one borrow: another one of the QP would end the first pointer.
                let halves = halves::<Rc>(qp)
                    .or_else(|| halves::<Uc>(qp))
                    .or_else(|| halves::<Ud>(qp))
                    .or_else(|| halves::<XrcSend>(qp));
                halves.unwrap_or_else(|| (None, Some(qp.recv_queue().into())))
            }
            Self::Raw(RawQp { qp, .. }) => {
                let (send, recv) = qp.split();
                (Some(NonNull::from(send).cast()), Some(recv.into()))
            }
            Self::Rss(_) => (None, None),
        }
    }
}

/// The queues, if the QP is of this type.
fn halves<T: QpType>(qp: &mut DynQp<'static, P>) -> Option<(SendHalf, RecvHalf)> {
    let (send, recv) = qp.split::<T>()?;
    Some((Some(NonNull::from(send).cast()), Some(recv.into())))
}

/// The send queue of a QP: a `SendQueue` of the QP's type, which those functions know that are made for the type. A target of
/// XRC has none, nor has a QP that is destroyed.
pub(crate) type SendHalf = Option<NonNull<()>>;

/// The receive queue of a QP. One that hashes has none, nor has a QP that is destroyed.
pub(crate) type RecvHalf = Option<NonNull<RecvQueue<'static>>>;

/// A queue pair. Posting takes the lock of the send or of the receive queue; everything else takes both, after `control`.
#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) ex: ibv_qp_ex,
    /// `ibv_post_send` of the QP's type.
    pub(crate) post_send: PostSend,
    /// Points into `qp`, and is used with the lock held.
    pub(crate) send: DataLock<SendHalf>,
    /// Points into `qp` as well, under its own lock.
    pub(crate) recv: DataLock<RecvHalf>,
    /// Work requests of `ibv_wr_*` that are not posted yet. Used with the lock of the send queue held.
    pub(crate) opened: UnsafeCell<Opened>,
    pub(crate) hca: &'static Hca,
    /// `None` once it is destroyed. Used with all three locks held.
    pub(crate) qp: Box<UnsafeCell<Option<AnyQp>>>,
    pub(crate) control: Mutex<()>,
    pub(crate) acks: Acks,
    /// The path that was set last: of one inside the device the device itself knows nothing.
    pub(crate) path: Mutex<AhAttr>,
    /// The groups that it is attached to, by GID and LID.
    pub(crate) groups: Mutex<Vec<(Gid, u16)>>,
    /// The part of a QP that the connection manager moves.
    pub(crate) moved: Moved,
}

impl QpObject {
    /// Works on the QP as a whole: nothing is posted meanwhile.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut AnyQp) -> Result<R>) -> Result<R> {
        let _control = lock(&self.control);
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        // SAFETY: with all three locks held there is no other reference to the QP or into it.
        let qp = unsafe { &mut *self.qp.get() };
        let qp = qp.as_mut().ok_or(Errno::EINVAL)?;
        let result = work(qp);
        (*send, *recv) = self.halves(qp);
        result
    }

    /// Does the same, unless another thread works on the QP or posts to it.
    pub(super) fn try_with<R>(&self, work: impl FnOnce(&mut AnyQp) -> R) -> Option<R> {
        let _control = match self.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(control)) => control.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut send = self.send.try_lock()?;
        let mut recv = self.recv.try_lock()?;
        // SAFETY: with all three locks held there is no other reference to the QP or into it.
        let qp = unsafe { &mut *self.qp.get() }.as_mut()?;
        let result = work(qp);
        (*send, *recv) = self.halves(qp);
        Some(result)
    }

    /// The queues as those who post find them.
    fn halves(&self, qp: &mut AnyQp) -> (SendHalf, RecvHalf) {
        let state = qp.state();
        let (send, recv) = qp.split();
        (send.filter(|_| !self.moved.closes(state)), recv)
    }

    /// Moves the QP, and remembers the state for the program.
    pub(crate) fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<()> {
        self.settle();
        self.with(|qp| {
            let modified = qp.modify(attr, mask);
            self.show_state(qp.state());
            if let Err(error) = &modified {
                log::debug!("{}: {error}", qp.qpn());
            }
            modified?;
            if mask.contains(QpAttrMask::AV) {
                *lock(&self.path) = attr.ah_attr;
            }
            Ok(())
        })
    }

    /// Asks the device for the attributes.
    pub(crate) fn query(&self) -> Result<QueriedQp> {
        self.settle();
        let mut queried = self.with(|qp| Ok(qp.query()?))?;
        self.show_state(queried.attr.qp_state);
        if queried.attr.ah_attr.force_loopback {
            queried.attr.ah_attr = AhAttr {
                static_rate: queried.attr.ah_attr.static_rate,
                ..*lock(&self.path)
            };
        }
        Ok(queried)
    }

    /// Writes `state` of `struct ibv_qp`.
    pub(crate) fn show_state(&self, state: QpState) {
        // SAFETY: the field is for the program's eyes, which looks without a lock as it does with libibverbs.
        unsafe {
            let to = (&raw const self.ex.qp_base.state).cast_mut();
            to.write_volatile(state as c_int);
        }
    }

    /// Reads it, as the program may have written it.
    pub(super) fn shown_state(&self) -> c_int {
        // SAFETY: the field is there as long as the object, and a number may be anything.
        unsafe { (&raw const self.ex.qp_base.state).read_volatile() }
    }

    /// Destroys the QP in the device, and makes it unknown to its events.
    pub(crate) fn destroy(&self) -> Result<()> {
        let _control = lock(&self.control);
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        // SAFETY: with all three locks held there is no other reference to the QP or into it.
        let qp = unsafe { &mut *self.qp.get() };
        if qp.as_ref().is_some_and(AnyQp::has_rules) {
            return Err(Errno::EBUSY);
        }
        let taken = qp.take().ok_or(Errno::EINVAL)?;
        let destroyed = match taken {
            AnyQp::Raw(raw) => {
                raw.destroy();
                Ok(())
            }
            AnyQp::Rss(rss) => {
                rss.destroy();
                Ok(())
            }
            AnyQp::Verbs(inner) => inner
                .destroy()
                .map_err(|(kept, error)| (AnyQp::Verbs(kept), error)),
        };
        match destroyed {
            Ok(()) => {
                (*send, *recv) = (None, None);
                Ok(())
            }
            Err((kept, error)) => {
                (*send, *recv) = self.halves(qp.insert(kept));
                Err(error.into())
            }
        }
    }
}

/// The object behind a QP of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
#[inline]
pub(crate) unsafe fn qp<'a>(qp: *mut ibv_qp) -> Result<&'a QpObject> {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    unsafe { qp.cast::<QpObject>().as_ref() }.ok_or(Errno::EINVAL)
}
