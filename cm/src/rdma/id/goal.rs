//! Transitions that an id's QP is to make, and the one that is under way: the part of the id's slot that
//! [`conn/work.rs`](crate::rdma::conn::work) moves on.

use crate::rdma::types::param::Asked;

/// Transitions that an id's QP is to make, and the one that is under way.
#[derive(Debug)]
pub(crate) struct Work {
    /// The transition that the firmware was asked for.
    pub(crate) under_way: Option<Move>,
    /// The QP is to go to ERR, before anything else.
    pub(crate) flush: bool,
    /// The QP was created, and this transition comes next before it is the id's: to INIT, for datagrams then to RTR and RTS.
    pub(crate) fresh: Option<Move>,
    pub(crate) goal: Goal,
    /// There will be no QP: what there was of it is being destroyed. The reason is the id's failure.
    pub(crate) failing: bool,
    /// The id is gone, and its objects are being destroyed.
    pub(crate) ending: bool,
    /// Or its QP is kept for another one, and this was begun for that.
    pub(crate) recycle: Option<Recycle>,
}

/// Progress of a QP that is being prepared for another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recycle {
    Begun,
    /// It goes to RESET.
    Reset,
    /// It goes to INIT.
    Init,
}

/// A transition of an id's QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Init,
    Rtr,
    Rts,
    Flush,
    /// Loads an alternate path, and arms it.
    #[cfg(feature = "infiniband")]
    Load,
}

/// The message that follows the commands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    None,
    /// REQ, once the QP has its number.
    Request(Asked),
    /// The QP goes to RTS, from this transition on; then REP.
    Accept(Move, Asked),
    /// The same; then RTU.
    Confirm(Move),
    /// SIDR_REP, once the QP is there.
    Serve,
    /// The QP of a connection gets an alternate path; then APR if the peer asked for it.
    #[cfg(feature = "infiniband")]
    Load(LoadedFor),
}

/// The end that asked for an alternate path.
#[cfg(feature = "infiniband")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadedFor {
    Application,
    Peer,
}

impl Work {
    pub(crate) const NONE: Self = Self {
        under_way: None,
        flush: false,
        fresh: None,
        goal: Goal::None,
        failing: false,
        ending: false,
        recycle: None,
    };

    /// Cancels the message that was to follow the commands. The command that is under way goes on.
    pub(crate) fn cancel(&mut self) {
        self.goal = Goal::None;
    }

    /// Returns `true` if a connection is on its way that was not called off.
    pub(crate) fn is_connecting(&self) -> bool {
        !matches!(self.goal, Goal::None)
    }

    /// Returns `true` if a command is under way, or is to come.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.is_some() || self.flush || self.fresh.is_some() || self.is_connecting()
    }

    /// The QP is gone.
    pub(crate) fn forget_qp(&mut self) {
        (self.under_way, self.flush, self.fresh) = (None, false, None);
        self.failing = false;
        self.cancel();
    }

    /// The transition that comes next.
    pub(crate) fn next(&self) -> Option<Move> {
        match self.goal {
            _ if self.flush => Some(Move::Flush),
            _ if self.fresh.is_some() => self.fresh,
            Goal::Accept(next, _) | Goal::Confirm(next) => Some(next),
            #[cfg(feature = "infiniband")]
            Goal::Load(..) => Some(Move::Load),
            _ => None,
        }
    }
}
