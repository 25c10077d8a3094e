//! The future behind all that waits.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use bareverbs_core::Platform;

use crate::rdma::id::slot::Target;
use crate::rdma::id::waiters::Waiters;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::tasks::AsyncCm;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{ChannelId, CmId};
use crate::rdma::verbs::owned::Side;

/// Source of an event that a task waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// The events of a channel.
    Channel(ChannelId),
    /// The events of an id without a channel.
    Id(CmId),
    /// Completions in a CQ of the manager's.
    Completions(CmId, Side),
}

/// Looks in `source` until `look` finds something. Dropping it at any time loses nothing.
pub(super) struct Wait<'a, 'c, 's, 'd, P: Platform, R: Resolver, F> {
    pub(super) cm: &'a AsyncCm<'c, 's, 'd, P, R>,
    pub(super) source: Source,
    /// `true` if it was counted by the source.
    pub(super) entered: bool,
    pub(super) look: F,
}

impl<'s, 'd, P: Platform, R: Resolver> RdmaCm<'s, 'd, P, R> {
    /// Those who wait for the events of a source; `None` for completions, and if it was destroyed.
    fn waiters(&mut self, source: Source) -> Option<&mut Waiters> {
        let target = match source {
            Source::Channel(channel) => {
                self.ids.channel(channel).ok()?;
                Target::Channel(channel)
            }
            Source::Id(id) => Target::Id(self.ids.index(id).ok()? as u32),
            Source::Completions(..) => return None,
        };
        self.ids.waiters_mut(target)
    }
}

impl<'s, 'd, P: Platform, R: Resolver, F, T> Future for Wait<'_, '_, 's, 'd, P, R, F>
where
    F: FnMut(&mut RdmaCm<'s, 'd, P, R>, &mut Context<'_>) -> Poll<Result<T, RdmaError>> + Unpin,
{
    type Output = Result<T, RdmaError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (source, entered, look) = (this.source, &mut this.entered, &mut this.look);
        this.cm.with(|cm| {
            let found = look(cm, task);
            if found.is_pending()
                && let Some(waiters) = cm.waiters(source)
            {
                if !core::mem::replace(entered, true) {
                    waiters.enter();
                }
                waiters.register(task.waker());
            }
            found
        })
    }
}

impl<P: Platform, R: Resolver, F> Drop for Wait<'_, '_, '_, '_, P, R, F> {
    fn drop(&mut self) {
        // In use only where a waker drops the future that it wakes: then the waker was taken out before.
        let Ok(mut cm) = self.cm.cm.try_borrow_mut() else {
            return;
        };
        match self.source {
            Source::Completions(id, side) => {
                if let Ok(slot) = cm.ids.slot_mut(id) {
                    slot.objects.forget_task(side);
                }
            }
            source if self.entered => {
                if let Some(waiters) = cm.waiters(source) {
                    waiters.leave();
                }
            }
            _ => {}
        }
    }
}
