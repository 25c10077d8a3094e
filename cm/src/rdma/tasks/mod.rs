//! The manager for tasks: librdmacm's calls with async/await.

mod wait;

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::{Future, poll_fn};
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use bareverbs_core::pd::Pd;
use bareverbs_core::wc::Wc;
use bareverbs_core::{Device, Platform};

use crate::rdma::calls::addrinfo::AddrInfo;
use crate::rdma::calls::endpoint::RESOLVE;
use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::tasks::wait::{Source, Wait};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::sockaddr::SockAddr;
use crate::rdma::types::{ChannelId, CmEvent, CmId, ConnParam, IdType};
use crate::rdma::verbs::objects::QpInit;
use crate::rdma::verbs::owned::Side;

/// A manager that many tasks of one thread use, on any executor.
///
/// The calls that wait in [`RdmaCm`] are futures here, with the same names; everything else is a call of the manager's,
/// [`with`](Self::with) which it is borrowed. Ids are used as without tasks: those that have no channel wait for the outcome of
/// [`connect`](Self::connect) and the others, each in a task of its own, and those that have one get it as an event
/// ([`get_cm_event`](Self::get_cm_event)).
///
/// Nothing happens by itself. One task drives the manager: it calls [`turn`](Self::turn) at each interrupt, at the time
/// that the last turn has returned, and when [`due`](Self::due) says that a call of another task does not let it wait that
/// long.
///
/// ```
/// use bareverbs_cm::rdma::*;
/// use bareverbs_core::Platform;
/// use core::time::Duration;
///
/// /// `sleep` ends at an interrupt, or at a time on the platform's clock.
/// async fn drive<P: Platform, R: Resolver>(
///     cm: &AsyncCm<'_, '_, '_, P, R>,
///     select: impl AsyncFn(Option<Duration>),
/// ) -> Result<(), RdmaError> {
///     loop {
///         let deadline = cm.turn()?;
///         // With tokio: `select! { _ = interrupt.readable() => …, () = sleep_until(deadline) => …, () = cm.due() => … }`.
///         select(deadline).await;
///     }
/// }
///
/// /// Answers one message, and leaves.
/// async fn answer<P: Platform, R: Resolver>(
///     cm: &AsyncCm<'_, '_, '_, P, R>,
///     listener: CmId,
/// ) -> Result<(), RdmaError> {
///     let id = cm.get_request(listener).await?;
///     let buffer = cm.with(|cm| {
///         let buffer = cm.reg_msgs(id, 64)?;
///         cm.post_recv(id, 0, buffer.slice(..)?)?;
///         Ok::<_, RdmaError>(buffer)
///     })?;
///     cm.accept(id, None).await?;
///     let len = cm.get_recv_comp(id).await?.byte_len;
///     cm.with(|cm| cm.post_send(id, 0, buffer.slice(..len as usize)?, SendFlags::SIGNALED))?;
///     let _ = cm.get_send_comp(id).await?;
///     cm.disconnect(id).await?;
///     cm.with(|cm| cm.destroy_ep(id))
/// }
/// ```
///
/// A future may be dropped at any time. What has begun goes on: the outcome of a `connect` that was dropped is the next event
/// of the id ([`get_id_event`](Self::get_id_event)). Events and completions stay where they are until they are taken.
///
/// The futures borrow this manager, and it stays in its thread: `tokio::spawn` and `spawn_local` do not take them. They run
/// beside each other in one `block_on`, in a `FuturesUnordered` of the `futures` crate for instance. For tasks of other
/// threads `bareverbs-node` has `NodeHandle`; more threads at work need more devices.
///
/// One task waits for each channel, and for each id. If there are more, they get events in turn, and wake each other
/// for that. The commands of connections run while other tasks do; calls that need others, such as registering memory, keep
/// the thread for as long as those take.
pub struct AsyncCm<'c, 's, 'd, P: Platform, R: Resolver> {
    cm: RefCell<&'c mut RdmaCm<'s, 'd, P, R>>,
    driver: Driver,
}

/// Deadline and waker of the driving task.
#[derive(Default)]
struct Driver {
    /// The last turn's deadline.
    deadline: Cell<Option<Duration>>,
    /// Firmware commands until then: each reads events, and with them an interrupt that was for the driver.
    commands: Cell<u64>,
    due: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl<P: Platform, R: Resolver> fmt::Debug for AsyncCm<'_, '_, '_, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncCm").field(&self.cm).finish()
    }
}

impl<'c, 's, 'd, P: Platform, R: Resolver> AsyncCm<'c, 's, 'd, P, R> {
    /// For the tasks of this thread, until it is dropped.
    pub fn new(cm: &'c mut RdmaCm<'s, 'd, P, R>) -> Self {
        Self {
            cm: RefCell::new(cm),
            // A turn is due before anything else.
            driver: Driver {
                due: Cell::new(true),
                ..Driver::default()
            },
        }
    }

    /// Any call of the manager's. On an id without a channel, calls that are futures here block the thread until they have
    /// their outcome.
    ///
    /// # Panics
    /// If `call` uses the `AsyncCm` again.
    pub fn with<T>(&self, call: impl FnOnce(&mut RdmaCm<'s, 'd, P, R>) -> T) -> T {
        let mut cm = self.cm.borrow_mut();
        let result = call(&mut cm);
        let commands = cm.device().commands_executed();
        let deadline = cm.next_deadline(cm.now());
        drop(cm);
        let earlier = match (deadline, self.driver.deadline.get()) {
            (Some(now), Some(then)) => now < then,
            (now, then) => now.is_some() && then.is_none(),
        };
        if earlier || commands != self.driver.commands.get() {
            self.driver.due.set(true);
            if let Some(waker) = self.driver.waker.take() {
                waker.wake();
            }
        }
        result
    }

    /// The device.
    pub fn device(&self) -> &'d Device<'d, P> {
        self.cm.borrow().device()
    }

    /// Drives everything ([`RdmaCm::poll`]), which wakes the tasks that wait for what has come. Returns when the next turn is
    /// due at the latest, on the platform's clock ([`RdmaCm::next_deadline`]). A notification is acknowledged before the turn.
    ///
    /// # Errors
    /// That of the device, once it has failed: those who wait see it as well.
    pub fn turn(&self) -> Result<Option<Duration>, RdmaError> {
        let mut cm = self.cm.borrow_mut();
        let now = cm.now();
        cm.poll(now)?;
        let deadline = cm.next_deadline(cm.now());
        self.driver.deadline.set(deadline);
        self.driver.commands.set(cm.device().commands_executed());
        self.driver.due.set(false);
        Ok(deadline)
    }

    /// Waits until a turn is due before the time that the last one has returned, because of a call of another task. For
    /// the one that drives.
    pub fn due(&self) -> impl Future<Output = ()> {
        poll_fn(|task| {
            if self.driver.due.get() {
                return Poll::Ready(());
            }
            self.driver.waker.set(Some(task.waker().clone()));
            Poll::Pending
        })
    }

    /// Waits for an event of a channel (`rdma_get_cm_event`).
    pub async fn get_cm_event(&self, channel: ChannelId) -> Result<CmEvent, RdmaError> {
        self.wait(Source::Channel(channel), |cm, _| {
            found(cm.try_get_cm_event(channel))
        })
        .await
    }

    /// Waits for an event of an id without a channel that no call waits for: `Disconnected`, say.
    pub async fn get_id_event(&self, id: CmId) -> Result<CmEvent, RdmaError> {
        self.wait(Source::Id(id), |cm, _| found(cm.try_get_id_event(id)))
            .await
    }

    /// Waits for a connection request on a listener without a channel ([`RdmaCm::get_request`]).
    pub async fn get_request(&self, listener: CmId) -> Result<CmId, RdmaError> {
        self.wait(Source::Id(listener), |cm, _| {
            found(cm.try_get_request(listener))
        })
        .await
    }

    /// Makes an id without a channel, as [`RdmaCm::create_ep`] does. It is destroyed if a step fails, or if this is dropped.
    pub async fn create_ep<'q: 'd>(
        &self,
        address: &AddrInfo,
        pd: Option<&'d Pd<'d, P>>,
        init: Option<&mut QpInit<'_, 'q, P>>,
    ) -> Result<CmId, RdmaError> {
        let id_type = IdType::of_port_space(address.port_space);
        self.create_ep_of(address, id_type, pd, init).await
    }

    /// The same with the type of the QP, as [`RdmaCm::create_ep_of`] does.
    pub async fn create_ep_of<'q: 'd>(
        &self,
        address: &AddrInfo,
        id_type: IdType,
        pd: Option<&'d Pd<'d, P>>,
        init: Option<&mut QpInit<'_, 'q, P>>,
    ) -> Result<CmId, RdmaError> {
        if address.passive {
            return self.with(|cm| cm.create_ep_of(address, id_type, pd, init));
        }
        let destination = address.dst_addr.ok_or(RdmaError::NotBound)?;
        let id = self.with(|cm| cm.create_id_of(None, 0, address.port_space, id_type))?;
        let unfinished = Unfinished { cm: self, id };
        self.resolve_addr(id, address.src_addr, destination, RESOLVE)
            .await?;
        match address.route {
            Some(path) => self.call(id, |cm| cm.use_path(id, &path)).await?,
            None => self.resolve_route(id, RESOLVE).await?,
        }
        if let Some(init) = init {
            self.with(|cm| cm.start_qp(id, pd, init))?;
            self.wait(Source::Id(id), |cm, _| found(cm.try_finish_qp(id)))
                .await?;
        }
        core::mem::forget(unfinished);
        Ok(id)
    }

    /// [`RdmaCm::resolve_addr`].
    pub async fn resolve_addr(
        &self,
        id: CmId,
        source: Option<SockAddr>,
        destination: impl Into<SockAddr>,
        timeout: Duration,
    ) -> Result<(), RdmaError> {
        let destination = destination.into();
        self.call(id, |cm| cm.resolve_addr(id, source, destination, timeout))
            .await
    }

    /// [`RdmaCm::resolve_route`].
    pub async fn resolve_route(&self, id: CmId, timeout: Duration) -> Result<(), RdmaError> {
        self.call(id, |cm| cm.resolve_route(id, timeout)).await
    }

    /// [`RdmaCm::connect`].
    pub async fn connect(&self, id: CmId, param: Option<&ConnParam<'_>>) -> Result<(), RdmaError> {
        self.call(id, |cm| cm.connect(id, param)).await
    }

    /// [`RdmaCm::accept`].
    pub async fn accept(&self, id: CmId, param: Option<&ConnParam<'_>>) -> Result<(), RdmaError> {
        let id_type = self.with(|cm| cm.ids.slot(id).map(|slot| slot.id_type))?;
        if id_type.is_datagram() {
            // No event follows.
            return self.with(|cm| cm.accept(id, param));
        }
        self.call(id, |cm| cm.accept(id, param)).await
    }

    /// [`RdmaCm::disconnect`].
    pub async fn disconnect(&self, id: CmId) -> Result<(), RdmaError> {
        self.with(|cm| cm.without_waiting(|cm| cm.disconnect(id)))?;
        self.wait(Source::Id(id), |cm, _| {
            found(cm.try_complete_disconnect(id))
        })
        .await
    }

    /// Waits for the completion of a send, in the CQ that the manager made. That of a failed work request is an error
    /// ([`RdmaCm::get_send_comp`]).
    pub async fn get_send_comp(&self, id: CmId) -> Result<Wc, RdmaError> {
        self.completion(id, Side::Send).await
    }

    /// Waits for the completion of a receive, in the CQ that the manager made. That of a failed work request is an error
    /// ([`RdmaCm::get_recv_comp`]).
    pub async fn get_recv_comp(&self, id: CmId) -> Result<Wc, RdmaError> {
        self.completion(id, Side::Recv).await
    }

    async fn completion(&self, id: CmId, side: Side) -> Result<Wc, RdmaError> {
        self.wait(Source::Completions(id, side), move |cm, task| {
            cm.ids.slot_mut(id)?.objects.poll_next(side, task)
        })
        .await
    }

    /// A call that has an outcome: on an id without a channel, waits for it.
    async fn call(
        &self,
        id: CmId,
        call: impl FnOnce(&mut RdmaCm<'s, 'd, P, R>) -> Result<(), RdmaError>,
    ) -> Result<(), RdmaError> {
        self.with(|cm| cm.without_waiting(call))?;
        self.wait(Source::Id(id), |cm, _| found(cm.try_complete(id)))
            .await
    }

    fn wait<T, F>(&self, source: Source, look: F) -> Wait<'_, 'c, 's, 'd, P, R, F>
    where
        F: FnMut(&mut RdmaCm<'s, 'd, P, R>, &mut Context<'_>) -> Poll<Result<T, RdmaError>>,
    {
        Wait {
            cm: self,
            source,
            entered: false,
            look,
        }
    }
}

fn found<T>(outcome: Result<Option<T>, RdmaError>) -> Poll<Result<T, RdmaError>> {
    match outcome.transpose() {
        Some(outcome) => Poll::Ready(outcome),
        None => Poll::Pending,
    }
}

/// An id that has no owner yet.
struct Unfinished<'a, 'c, 's, 'd, P: Platform, R: Resolver> {
    cm: &'a AsyncCm<'c, 's, 'd, P, R>,
    id: CmId,
}

impl<P: Platform, R: Resolver> Drop for Unfinished<'_, '_, '_, '_, P, R> {
    fn drop(&mut self) {
        let destroyed = self.cm.with(|cm| cm.destroy_id(self.id));
        if let Err(error) = destroyed {
            log::warn!("an id stays: {error}");
        }
    }
}
